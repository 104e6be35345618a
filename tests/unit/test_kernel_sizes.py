"""Functions of kernels over sizes of their own."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import relax, tirx
from tvm.relax import op

from unity_collage.graph import DataflowGraph, SubGraph
from unity_collage.graph.free_sizes import UnknownSize, size_of
from unity_collage.graph.sized_kernels import why_not_empty, why_not_told
from unity_collage.lowering.kernel_sizes import with_sizes_of_its_own
from unity_collage.operators import lstm

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")
HALF = tirx.floordiv(N - 1, 2) + 1


def function(body: Any, *shapes: Any) -> relax.Function:
    """``body`` of operands of these ``shapes``, as a sub-graph of a function that has the size n."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("f", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder, *params))
        builder.emit_func_output(result)
    return builder.get()["f"]


def shape_of(ty: Any) -> list[str]:
    return [str(size_of(extent)) for extent in ty.shape.values]


def test_a_static_function_stays() -> None:
    func = function(lambda _, x: op.nn.relu(x), (2, 3))
    assert with_sizes_of_its_own(func) is func


def test_an_extent_that_is_no_size_gets_a_name() -> None:
    func = function(lambda b, x, y: op.add(b.emit(op.nn.relu(x)), y), (1, HALF, 4), (1, HALF, 4))
    own = with_sizes_of_its_own(func)
    assert [shape_of(param.ty)[1] for param in own.params] == ["size_0", "size_0"]
    assert shape_of(own.ret_ty) == ["1", "size_0", "4"]


def test_types_follow_from_the_new_sizes() -> None:
    layout: dict[str, Any] = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    weights = relax.Var("w", relax.TensorType((3, 3, 4, 4), "float32"))
    func = function(
        lambda b, x, w: op.nn.conv2d(x, w, strides=2, padding=1, **layout),
        (1, HALF, N, 4),
        tuple(weights.ty.shape.values),
    )
    own = with_sizes_of_its_own(func)
    _, height, width, _ = own.ret_ty.shape.values
    assert {str(var.name) for var in relax.analysis.tir_vars_in_type(own.ret_ty)} == {"size_0", "n"}
    assert "size_0" in str(height) and "n" in str(width)
    assert why_not_told(own) is None


def test_a_shape_that_follows_from_no_operand_is_refused() -> None:
    func = function(lambda _, x: op.reshape(x, (N, 2, 2)), (HALF, 4))
    with pytest.raises(UnknownSize, match="the size n is not an extent of an operand"):
        with_sizes_of_its_own(func)


def test_a_shape_of_known_extents_is_renamed() -> None:
    func = function(lambda _, x: op.reshape(x, (HALF, N, 2, 2)), (HALF, N, 4))
    own = with_sizes_of_its_own(func)
    assert shape_of(own.ret_ty) == ["size_0", "n", "2", "2"]
    assert N not in relax.analysis.tir_vars_in_type(own.ret_ty), (
        "the caller's sizes are not those of the kernel"
    )


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ((3, N), (N, 3), "an operand may be empty where a result is not: n may be 0"),
        ((N, 3), (3, 3), None),
        ((3, N + 1), (N + 1, 3), None),
        ((N, N + M), (N + M, 3), None),  # where there is no key there is no query either
        ((N, N - 1), (N - 1, 3), "an operand may be empty where a result is not: n may be 1"),
        ((N, HALF), (HALF, 3), None),
        ((N - 1, 3), (3, 3), None),
    ],
)
def test_results_that_are_empty_with_their_operands(left: Any, right: Any, reason: str | None) -> None:
    graph = DataflowGraph(function(lambda _, x, y: op.matmul(x, y), left, right))
    assert why_not_empty(SubGraph(graph, 1)) == reason


def test_a_recurrent_layer_may_have_no_steps() -> None:
    """Its result has a row for the memory; with no sequence it would have none."""

    def layer(_: Any, x: relax.Expr, weights: relax.Expr, state: relax.Expr) -> relax.Expr:
        return lstm(x, weights, state, state, keeps_memory=True)

    def relu_before(builder: relax.BlockBuilder, x: relax.Expr, *others: relax.Expr) -> relax.Expr:
        return layer(builder, builder.emit(op.nn.relu(x)), *others)

    shapes = (N, M, 8), (2, 8), (M, 2)
    assert why_not_empty(SubGraph(DataflowGraph(function(layer, *shapes)), 1)) is None
    reason = why_not_empty(SubGraph(DataflowGraph(function(relu_before, *shapes)), 3))
    assert reason == "an operand may be empty where a result is not: n may be 0"


def test_a_size_between_two_parts_is_refused() -> None:
    """The extent between two convolutions with strides is one of no argument."""
    layout: dict[str, Any] = {"data_layout": "NWC", "kernel_layout": "WIO"}

    def two(builder: relax.BlockBuilder, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        inner = builder.emit(op.nn.conv1d(x, w, strides=2, padding=1, **layout))
        return op.nn.conv1d(inner, w, strides=2, padding=1, **layout)

    own = with_sizes_of_its_own(function(two, (1, N, 4), (3, 4, 4)))
    assert "is neither an extent of an operand nor of a result" in (why_not_told(own) or "")
