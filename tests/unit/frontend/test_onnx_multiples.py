"""Free dimensions that the file calls multiples, such as ``4*rows``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import unity_collage as uc
from unity_collage.frontend.models import import_model
from unity_collage.graph.multiples import multiples, multiples_of
from unity_collage.sizes.samples import by_default, typical


def pyramid(rows: str = "4*rows", columns: str = "4*columns") -> onnx.ModelProto:
    """A quarter of an image enlarged to its half, beside the half: both have equal sizes in multiples of 4 alone."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((random.standard_normal(shape) / 9).astype("float32"), name)
        for name, shape in (("half", (8, 3, 3, 3)), ("quarter", (8, 8, 3, 3)))
    ]
    twice = numpy_helper.from_array(np.array([1, 1, 2, 2], "float32"), "twice")
    window: dict[str, Any] = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "half"], ["a"], **window),
        helper.make_node("Conv", ["a", "quarter"], ["b"], **window),
        helper.make_node("Resize", ["b", "", "twice"], ["c"], mode="nearest"),
        helper.make_node("Concat", ["a", "c"], ["y"], axis=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, rows, columns])
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "pyramid", [x], [y], [*weights, twice])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main_of(model: onnx.ModelProto) -> relax.Function:
    main = import_model(model).mod["main"]
    assert isinstance(main, relax.Function)
    return main


def test_sizes_that_follow_from_multiples_are_recognised_as_equal() -> None:
    main = main_of(pyramid())
    casts = [binding for binding in main.body.blocks[0].bindings if isinstance(binding, relax.MatchCast)]
    assert multiples(main) == {"v4_rows": 4, "v4_columns": 4}
    assert len(casts) == 1, "where the sizes of the concatenation looked different, they would be cast too"


def test_the_program_is_right_for_multiples_and_refuses_other_sizes() -> None:
    model = pyramid()
    program = uc.compile(model, measure=False)
    run = ReferenceEvaluator(model)
    for rows, columns in ((4, 4), (8, 12), (32, 64)):
        x = np.random.default_rng(rows).standard_normal((1, 3, rows, columns), dtype="float32")
        np.testing.assert_allclose(np.asarray(program(x)), run.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(uc.CollageError, match="dimension 2 is 6, not a multiple of 4"):
        program(np.zeros((1, 3, 6, 4), "float32"))


def test_a_saved_program_knows_them_too(tmp_path: Path) -> None:
    uc.compile(pyramid(), measure=False).save(tmp_path / "a.so")
    with pytest.raises(uc.CollageError, match="dimension 3 is 7, not a multiple of 4"):
        uc.load(tmp_path / "a.so")(np.zeros((1, 3, 8, 7), "float32"))


def test_a_fixed_size_is_no_multiple_of_a_name() -> None:
    main = main_of(pyramid(rows="32"))
    assert multiples(main) == {"v4_columns": 4}
    assert multiples(import_model(pyramid(), dims={"4*rows": 8, "4*columns": 8}).mod["main"]) == {}


@pytest.mark.parametrize("name", ["rows", "rows*columns", "rows+4", "1*rows", "4*2", "rows//4"])
def test_other_names_say_nothing_of_multiples(name: str) -> None:
    assert "rows" not in "".join(multiples(main_of(pyramid(rows=name))))


@I.ir_module
class CastByHand:
    """A parameter of unknown shape."""

    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2, dtype="float32"):
        m = T.int64()
        y = R.match_cast(x, R.Tensor((m, m * 4), "float32"))
        return y  # noqa: RET504  # TVMScript binds casts


def test_a_cast_of_an_unknown_shape_names_no_dimension() -> None:
    main = CastByHand["main"]
    assert multiples(main) == {} and multiples_of(main)[main.params[0]] == {1: 4}


def test_a_batch_beside_a_multiple_runs_at_every_size() -> None:
    model = pyramid()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    program = uc.compile(model, measure=False, shapes={"batch": [1, 4]})
    run = ReferenceEvaluator(model)
    for shape in ((1, 3, 4, 8), (3, 3, 8, 4), (4, 3, 12, 8)):
        x = np.random.default_rng(0).standard_normal(shape, dtype="float32")
        np.testing.assert_allclose(np.asarray(program(x)), run.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_kernels_are_measured_at_multiples() -> None:
    main = main_of(pyramid("48*rows", "500*columns"))
    assert typical(main) == {"v48_rows": 192, "v500_columns": 500}
    assert by_default(main) == {}
