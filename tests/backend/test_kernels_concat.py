"""Convolutions that write into a slice of a concatenation and copy the other slices beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from compiled import backends_of, compiled
from lowered_function import bound, constant, function, nn, op
from native_program import Program, random
from test_kernels_backend import annotated, assert_agrees, conv
from test_kernels_winograd import ISAS, assert_close, exact, nhwc
from tvm import relax
from tvm.ir import IRModule

from unity_collage.annotations import CANDIDATES
from unity_collage.testing.fixed_cost import FixedCost

IMAGE = (1, 6, 7, 8)


def largest(func: relax.Function) -> int:
    """How many operators the largest candidate covers."""
    found = CANDIDATES.read(annotated(func))
    return max(len(candidate.indexes) for candidate in found if candidate.backend == "kernels")


def relu_conv(x: relax.Expr) -> Any:
    return bound(nn.relu(bound(conv(x))))


def joined(*fields: relax.Expr, axis: int = 3) -> Any:
    return op.concat(tuple(fields), axis=axis)


CONCATS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "first of two": (lambda x, y: joined(relu_conv(x), y), (IMAGE, (1, 6, 7, 5))),
    "last of two": (lambda x, y: joined(y, relu_conv(x)), (IMAGE, (1, 6, 7, 5))),
    "between, two images": (lambda x, y, z: joined(y, relu_conv(x), z), ((2, 6, 7, 8), (2, 6, 7, 1), (2, 6, 7, 20))),
    "beside its own source": (lambda x: joined(x, relu_conv(x), x), (IMAGE,)),
    "beside a constant": (lambda x: joined(constant(1, 6, 7, 3), relu_conv(x)), (IMAGE,)),
    "rows of one image": (lambda x, y: joined(y, relu_conv(x), axis=1), (IMAGE, (1, 2, 7, 8))),
    "one pixel": (lambda x, y: joined(relu_conv(x), y), ((1, 1, 1, 8), (1, 1, 1, 3))),
    "large enough for two threads": (lambda x, y: joined(y, relu_conv(x)), ((1, 40, 40, 8), (1, 40, 40, 24))),
}  # fmt: skip


@pytest.mark.parametrize(("body", "shapes"), CONCATS.values(), ids=CONCATS)
def test_the_concat_is_part_of_the_kernel(body: Callable[..., Any], shapes: tuple[Any, ...]):
    func = function(body, *shapes)
    program = compiled(
        IRModule({"main": func}), ("kernels", "tvm"), FixedCost({"kernels": 1e-6, "tvm": 1e-3})
    )
    assert backends_of(program) == {"kernels"}
    assert_agrees(func, program)


@pytest.mark.parametrize(
    ("body", "covered"),
    [
        (lambda x: joined(y := relu_conv(x), y), 2),
        (lambda x: op.add(joined(y := relu_conv(x), x), joined(x, y)), 2),
        (lambda x: nn.relu(bound(joined(relu_conv(x), x))), 3),
        (lambda x: joined(op.add(relu_conv(x), x), x), 3),
        (lambda x: joined(relu_conv(x), x, axis=2), 2),
    ],
    ids=["twice", "two readers", "relu behind", "residual", "columns"],
)
def test_what_no_slice_can_be_stays_outside(body: Callable[..., Any], covered: int):
    """The result is needed elsewhere too, something goes behind the whole, an operand lies otherwise, or the slice is
    no image of whole rows.
    """
    assert largest(function(body, IMAGE)) == covered


def test_both_branches_are_candidates():
    def body(x: relax.Expr) -> relax.Expr:
        return joined(relu_conv(x), relu_conv(x))

    wholes = [c for c in CANDIDATES.read(annotated(function(body, IMAGE))) if len(c.indexes) == 3]
    assert len(wholes) == 4, "two tiles for each of two branches, and none for both"


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("primitive", ["winograd", "grouped"])
def test_only_the_slice_is_written(primitive: str, isa: str):
    x, weights = random(2, 5, 6, 32), random(32, 32 if primitive == "winograd" else 4, 3, 3, seed=1)
    program = Program()
    args = {"src": nhwc(program.input(*x.shape), x)}
    out = np.full((2, 5, 6, 50), 7, np.float32)
    whole = program.output(*out.shape)
    dims = [2, 32, 5, 6]
    args["dst"] = {**whole, "dims": dims, "strides": [30 * 50, 1, 6 * 50, 50], "offset": 11 * 4}
    args["weights"] = program.constant(weights)
    attrs = {"tile": 4} if primitive == "winograd" else {"stride": 1}
    program.step(primitive, args, padding_l=[1, 1], isa=isa, **attrs)
    program.create("kernels").get_function("main")(*(tvm_ffi.from_dlpack(a) for a in (x, out)))
    if primitive == "winograd":
        assert_close(out[..., 11:43], exact(x, weights, (1, 1)))
    assert np.all(out[..., :11] == 7) and np.all(out[..., 43:] == 7) and not np.any(out[..., 11:43] == 7)


def test_a_slice_whose_pixels_overlap_is_refused():
    x, weights = random(1, 5, 6, 16), random(16, 16, 3, 3)
    program = Program()
    args = {"src": nhwc(program.input(*x.shape), x), "weights": program.constant(weights)}
    args["dst"] = {**program.output(1, 5, 6, 16), "dims": [1, 16, 5, 6], "strides": [240, 1, 48, 8]}
    program.step("winograd", args, padding_l=[1, 1], tile=2)
    with pytest.raises(ValueError, match="pixels of 'dst' overlap"):
        program.create("kernels")
