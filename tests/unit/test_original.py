"""An ONNX model as a runtime gets it: written piece by piece, and the same message as the one that was read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_model
from tvm import relax

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx.data_files import DataFiles
from unity_collage.frontend.onnx.original import original
from unity_collage.frontend.onnx.wire import fields_of


def model(*sizes: int) -> onnx.ModelProto:
    """A model with an initializer for each of ``sizes``, the first of which is an input too."""
    value = helper.make_tensor_value_info
    names = [f"w{number}" for number in range(len(sizes))]
    nodes = [
        helper.make_node("Add", ["x" if i == 0 else f"s{i - 1}", name], [f"s{i}"])
        for i, name in enumerate(names)
    ]
    nodes.append(helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.float32([1]))))
    nodes.append(helper.make_node("Mul", [f"s{len(sizes) - 1}", "one"], ["y"]))
    random = np.random.default_rng(0)
    graph = helper.make_graph(
        nodes,
        "sums",
        [value("x", TensorProto.FLOAT, ("n", 1)), value("w0", TensorProto.FLOAT, (sizes[0],))],
        [value("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(random.standard_normal(size).astype(np.float32), name)
            for name, size in zip(names, sizes, strict=True)
        ],
        doc_string="of all sizes",
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("a.b", 1)], ir_version=8
    )
    helper.set_model_props(made, {"author": "a test"})
    return made


PARAMS = {"x": relax.Var("x", relax.TensorType((4, 1), "float32"))}


def fixed(given: onnx.ModelProto) -> onnx.ModelProto:
    """What is expected: the sizes of ``x`` are numbers, and initializers are no inputs."""
    right = onnx.ModelProto()
    right.CopyFrom(given)
    right.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    del right.graph.input[1:]
    return right


@pytest.mark.parametrize("sizes", [(0,), (1, 2, 3), (29, 30, 31, 32), (4000, 5000), (600_000, 1)])
def test_the_bytes_are_those_of_the_model_with_fixed_sizes(sizes: tuple[int, ...]) -> None:
    given = model(*sizes)
    before = given.SerializeToString(deterministic=True)
    result = original(given, None, PARAMS)
    assert onnx.load_from_string(result.tobytes()) == fixed(given)
    assert len(result) == fixed(given).ByteSize()  # no field is written twice
    assert result.ctypes.data % 64 == 0
    fields = [field.number for field in fields_of(result.tobytes(), 0, len(result))]
    assert fields == sorted(fields)  # as OpenVINO expects them
    assert given.SerializeToString(deterministic=True) == before


def test_weights_in_other_files_are_inside(tmp_path: Path) -> None:
    given = model(40, 5000, 1)
    right = fixed(given)
    onnx.save(  # this changes the model
        given,
        tmp_path / "a.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    read = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    result = onnx.load_from_string(original(read, DataFiles(str(tmp_path)), PARAMS).tobytes())
    load_external_data_for_model(read, str(tmp_path))
    assert result == fixed(read)
    tensors = [*right.graph.initializer, right.graph.node[-2].attribute[0].t]
    read_again = [*result.graph.initializer, result.graph.node[-2].attribute[0].t]
    for mine, original_tensor in zip(read_again, tensors, strict=True):
        assert np.array_equal(numpy_helper.to_array(mine), numpy_helper.to_array(original_tensor))


def test_a_file_of_weights_that_is_gone_is_a_reason(tmp_path: Path) -> None:
    onnx.save(model(5), tmp_path / "a.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    read = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match="its weights cannot be read"):
        original(read, DataFiles(str(tmp_path)), PARAMS)
