"""Large initializers stay in the file of their model until it is imported, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from unity_collage.errors import ModelError
from unity_collage.frontend.models import import_model, read_model
from unity_collage.frontend.onnx import data_files
from unity_collage.frontend.onnx.arrays import array_of
from unity_collage.frontend.onnx.data_files import DataFiles, left_in_file
from unity_collage.frontend.onnx.original import original
from unity_collage.frontend.onnx.reading import files_of_weights, read_onnx


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_LARGE_FILE", 0)
    monkeypatch.setattr(data_files, "_LEAST_BYTES", 256)


def tensors() -> list[onnx.TensorProto]:
    """Initializers of many kinds."""
    values = np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32)
    dtypes = ["float32", "float16", "float64", "int8", "uint16", "int64", "bool"]
    raw = [numpy_helper.from_array((10 * values).astype(dtype), f"of_{dtype}") for dtype in dtypes]
    raw.append(numpy_helper.from_array(values.astype(ml_dtypes.bfloat16), "of_bfloat16"))
    listed = helper.make_tensor("listed", TensorProto.FLOAT, (16, 24), values.ravel().tolist())
    small = numpy_helper.from_array(values[:1], "small")
    nibbles = helper.make_tensor("nibbles", TensorProto.INT4, (600,), [i % 16 - 8 for i in range(600)])
    raw[0].doc_string = "kept"
    return [*raw, listed, small, nibbles]


IN_FILE = {f"of_{name}" for name in
           ("float32", "float16", "float64", "int8", "uint16", "int64", "bool", "bfloat16")}  # fmt: skip


def model() -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Cast", [name], [f"{name}_"], to=TensorProto.FLOAT) for name in sorted(IN_FILE)]
    sums = ["x", "listed", "small", *(f"{name}_" for name in sorted(IN_FILE))]
    nodes.append(helper.make_node("Sum", sums, ["y"]))
    result = value("y", TensorProto.FLOAT, (16, 24))
    graph = helper.make_graph(nodes, "sums", [value("x", TensorProto.FLOAT, (16, 24))], [result], tensors())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(model(), tmp_path / "a.onnx")
    return tmp_path / "a.onnx"


def test_large_initializers_are_read_when_they_are_needed(path: Path) -> None:
    file = read_model(path)
    left = {t.name for t in file.model.graph.initializer if left_in_file(t, file.files) is not None}
    assert left == IN_FILE
    assert files_of_weights(file.model) == []
    for tensor, right in zip(file.model.graph.initializer, tensors(), strict=True):
        found = array_of(tensor, file.files)
        assert found.dtype == numpy_helper.to_array(right).dtype and found.shape == tuple(right.dims)
        assert found.tobytes() == numpy_helper.to_array(right).tobytes()
    assert read_onnx(path).model == model()


def test_the_module_and_the_model_for_runtimes_are_those_of_the_whole_file(path: Path) -> None:
    lazy, whole = import_model(read_model(path)), import_model(onnx.load(path))
    tvm.ir.assert_structural_equal(lazy.mod, whole.mod)
    file = read_model(path)
    params = {"x": lazy.mod["main"].params[0]}
    assert onnx.load_from_string(original(file.model, file.files, params).tobytes()) == model()


def test_a_message_in_several_parts_is_read_as_a_whole(tmp_path: Path) -> None:
    """Protocol Buffers merge a field that comes twice."""
    first, second = model(), onnx.ModelProto()
    second.graph.doc_string = "more"
    (tmp_path / "a.onnx").write_bytes(first.SerializeToString() + second.SerializeToString())
    first.graph.doc_string = "more"
    assert read_onnx(tmp_path / "a.onnx", whole=False).model == first


@pytest.mark.parametrize("length", [1, 700, -1, -300])
def test_a_file_that_is_cut_is_refused_as_ever(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelError, match="is not an ONNX model"):
        read_onnx(path, whole=False)


@pytest.mark.parametrize("change", [lambda data: data[:3000], lambda data: data[:-9] + b"\0" * 9])
def test_a_file_that_changes_before_it_is_read_is_a_reason(
    path: Path, change: Callable[[bytes], bytes]
) -> None:
    file = read_model(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ModelError, match="has changed while it was read"):
        import_model(file)
    params = {"x": import_model(model()).mod["main"].params[0]}
    with pytest.raises(ModelError, match="its weights cannot be read"):
        original(file.model, file.files, params)


def test_no_file_reads_beyond_itself(path: Path) -> None:
    """A tensor with external data that names no file."""
    made = model()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", ""), ("offset", "10000000"), ("length", str(4 * 16 * 24))):
        tensor.external_data.add(key=key, value=value)
    onnx.save(made, path)
    with pytest.raises(ModelError, match="'of_float32' cannot be read"):
        import_model(path)
    with pytest.raises(ModelError, match="'of_float32' cannot be read"):
        array_of(tensor, DataFiles(str(path.parent)))
