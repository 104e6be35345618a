"""The work of a sub-graph as it is written, which rates such as GFLOP/s are of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import relax, tirx
from tvm.script import relax as R

from unity_collage.graph import DataflowGraph, SubGraph
from unity_collage.graph.work import border_bytes, direct_flops

Shape = tuple[int | tirx.Var, ...]
ROWS = tirx.Var("n", "int64")


def whole(operator: Callable[..., Any], *shapes: Shape, dtype: str = "float32") -> SubGraph:
    """The function that applies an operator to parameters of these shapes."""
    params = [relax.Var(f"x{number}", relax.TensorType(shape, dtype)) for number, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(operator(*params))
        builder.emit_func_output(result)
    graph = DataflowGraph(builder.get()["main"])
    return SubGraph(graph, (1 << len(graph)) - 1)


@pytest.mark.parametrize(
    ("operator", "shapes", "flops", "elements"),
    [
        (R.matmul, ((4, 8), (8, 3)), 2 * 4 * 8 * 3, 32 + 24 + 12),
        (R.matmul, ((2, 4, 8), (2, 8, 3)), 2 * 2 * 4 * 8 * 3, 64 + 48 + 24),
        (R.nn.conv2d, ((1, 4, 8, 8), (6, 4, 3, 3)), 2 * 6 * 36 * 4 * 9, 256 + 216 + 216),
        (
            lambda x, w: R.nn.conv2d(x, w, groups=4),
            ((1, 4, 8, 8), (4, 1, 3, 3)),
            2 * 4 * 36 * 9,
            256 + 36 + 144,
        ),
        (R.nn.conv2d_transpose, ((1, 4, 5, 5), (4, 6, 3, 3)), 2 * 100 * 6 * 9, 100 + 216 + 6 * 49),
        (R.nn.relu, ((4, 8),), 0, 64),
    ],
)
def test_contractions_count_by_the_direct_algorithm_and_each_tensor_once(
    operator: Callable[..., Any], shapes: tuple[Shape, ...], flops: int, elements: int
) -> None:
    sub = whole(operator, *shapes)
    assert direct_flops(sub) == (flops, "float32" if flops else "")
    assert border_bytes(sub) == 4 * elements


def test_the_type_of_a_contraction_is_that_of_its_operands() -> None:
    sub = whole(R.matmul, (4, 8), (8, 3), dtype="bfloat16")
    assert direct_flops(sub)[1] == "bfloat16"
    assert border_bytes(sub) == 2 * (32 + 24 + 12)


def test_unknown_sizes_have_no_work() -> None:
    sub = whole(R.matmul, (ROWS, 8), (8, 3))
    assert direct_flops(sub) == (None, "float32")
    assert border_bytes(sub) is None
