"""Convolutions that write into a slice of a concatenation and make its sibling copies, or read its fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from compiled import backends_of, compiled
from lowered_function import bound, constant, function, nn, op
from native_program import Program, random
from test_kernels_backend import OPTIONS, annotated, assert_agrees, conv
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
    not an image of whole rows."""
    assert largest(function(body, IMAGE)) == covered


def test_both_branches_are_candidates():
    def body(x: relax.Expr) -> relax.Expr:
        return joined(relu_conv(x), relu_conv(x))

    wholes = [c for c in CANDIDATES.read(annotated(function(body, IMAGE))) if len(c.indexes) == 3]
    assert len(wholes) == 4, "two tiles for each of two branches, and none for both"


def conv_of(*fields: relax.Expr, axis: int = 3) -> Any:
    """A convolution of fields as one image."""
    image = bound(joined(*fields, axis=axis))
    return nn.conv2d(image, constant(3, 3, int(image.ty.shape.values[3]), 8), **OPTIONS)


READS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "two fields": (lambda x, y: conv_of(x, y), ((1, 6, 7, 16), (1, 6, 7, 32)), 2),
    "the last of odd size": (lambda x, y: conv_of(x, y), ((2, 5, 7, 32), (2, 5, 7, 9)), 2),
    "three, one a view": (
        lambda x, y, z: conv_of(x, bound(op.reshape(y, (1, 6, 7, 16))), z),
        ((1, 6, 7, 16), (1, 42, 16), (1, 6, 7, 3)),
        3,
    ),
    "the same twice": (lambda x: conv_of(x, x), ((1, 6, 7, 16),), 2),
    "written to a slice too": (
        lambda x, y: joined(x, bound(conv_of(x, y))),
        ((1, 6, 7, 16), (1, 6, 7, 16)),
        3,
    ),
    "large enough for two threads": (
        lambda x, y: conv_of(x, y),
        ((1, 40, 40, 32), (1, 40, 40, 16)),
        2,
    ),
    "shared phases": (lambda x, y: conv_of(x, y), ((1, 4, 4, 160), (1, 4, 4, 96)), 2),
}


@pytest.mark.parametrize(("body", "shapes", "covered"), READS.values(), ids=READS)
def test_fields_are_read_where_they_lie(body: Callable[..., Any], shapes: tuple[Any, ...], covered: int):
    func = function(body, *shapes)
    assert largest(func) == covered
    program = compiled(
        IRModule({"main": func}), ("kernels", "tvm"), FixedCost({"kernels": 1e-6, "tvm": 1e-3})
    )
    assert backends_of(program) == {"kernels"}
    assert_agrees(func, program)


def whole_and_conv(x: relax.Expr, y: relax.Expr) -> Any:
    whole = bound(joined(x, y))
    return joined(bound(nn.conv2d(whole, constant(3, 3, 32, 8), **OPTIONS)), whole)


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        (lambda x, y: conv_of(x, y), ((1, 6, 7, 8), (1, 6, 7, 16))),
        (lambda x, y: conv_of(x, y, axis=2), ((1, 6, 7, 16), (1, 6, 2, 16))),
        (whole_and_conv, ((1, 6, 7, 16), (1, 6, 7, 16))),
    ],
    ids=["half a vector", "columns", "two readers"],
)
def test_a_concat_that_cannot_be_read_in_parts_stays_outside(
    body: Callable[..., Any], shapes: tuple[Any, ...]
):
    func = function(body, *shapes)
    kernels = [c for c in CANDIDATES.read(annotated(func)) if c.backend == "kernels"]
    assert kernels and all(0 not in candidate.indexes for candidate in kernels)


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
