"""The functions that a backend is examined with: single operators, short chains of them, and the named graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.script import relax as R

from ... import operators
from .. import graphs

Shape = Sequence[Any]
Body = Callable[..., relax.Expr]
nn: Any = R.nn
"""TVM annotates the parameters of its operators too narrowly."""


@dataclass(frozen=True, slots=True)
class Case:
    """A function of one dataflow block, with a name for findings."""

    name: str
    make: Callable[[], relax.Function]
    kind: str | None = None
    """The kind of targets that the case is for, such as ``cuda``; None: all kinds."""


def case(name: str, body: Body, *shapes: Shape, dtype: str = "float32", kind: str | None = None) -> Case:
    """A case that computes ``body`` for tensors of ``shapes``.

    Nested calls in ``body`` become bindings, and a tuple becomes several results.
    """
    texts = [",".join(map(str, shape)) for shape in shapes]
    full_name = f"{name} {dtype} {' '.join(f'({text})' for text in texts)}"
    return Case(full_name, lambda: function(body, shapes, dtype), kind)


def function(body: Body, shapes: Sequence[Shape], dtype: str = "float32") -> relax.Function:
    """``main`` with a parameter for each shape."""
    params = [relax.Var(f"x{i}", relax.TensorType(list(s), dtype)) for i, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    return builder.get()["main"]


def bound(value: relax.Expr) -> Any:
    """A variable that is bound to ``value``: for values that are read twice, and for fields of a result."""
    builder: Any = relax.BlockBuilder.current()
    return builder.emit(value)


def weights(*shape: int, dtype: str = "float32") -> Any:
    """A constant of ordinary numbers."""
    count = math.prod(shape)
    numbers = np.sin(np.arange(1, count + 1, dtype="float32") * 1.7)
    return relax.const(numbers.reshape(shape).astype(dtype))


def whole(*shape: int) -> Any:
    """A constant of bytes."""
    numbers = np.arange(math.prod(shape)) * 37 % 256 - 128
    return relax.const(numbers.reshape(shape).astype("int8"))


_RANKS: tuple[Shape, ...] = ((), (1,), (7,), (3, 5), (1, 3, 5, 7), (3, 8, 6, 6))
_UNARY = ("exp", "tanh", "sigmoid", "sqrt", "abs", "negative", "erf", "log", "rsqrt", "floor")
_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "leakyrelu", "softplus")
_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
_PAIRS: tuple[tuple[Shape, Shape], ...] = (
    ((3, 5), (3, 5)),
    ((4, 16), (16,)),
    ((16,), (4, 16)),
    ((3, 1, 5), (1, 4, 1)),
    ((3, 5), ()),
    ((), ()),
    ((1, 8, 5, 5), (1, 8, 1, 1)),
)


def _elementwise() -> Iterator[Case]:
    for shape in _RANKS:
        yield case("relu", R.nn.relu, shape)
    for name in _UNARY:
        yield case(name, getattr(R, name), (3, 5))
    for name in _ACTIVATIONS[1:]:
        yield case(name, getattr(R.nn, name), (3, 7, 5))
    for dtype in ("float16", "float64", "int32", "int8"):
        yield case("relu", R.nn.relu, (3, 5), dtype=dtype)
        yield case("add", R.add, (3, 5), (3, 5), dtype=dtype)
    for name in _BINARY:
        for left, right in _PAIRS if name == "add" else _PAIRS[1:4]:
            yield case(name, getattr(R, name), left, right)
    yield case("add to itself", lambda x: R.add(x, x), (3, 5))
    yield case("add a constant", lambda x: R.add(x, weights(7)), (3, 7))
    yield case("multiply by a number", lambda x: R.multiply(x, R.const(0.5, "float32")), (3, 7))
    yield case("clip", lambda x: R.clip(x, 0, 6), (3, 7))
    yield case("relu of nothing", R.nn.relu, (0, 5))
    yield case("cast", lambda x: R.astype(x, "int32"), (3, 5))
    yield case("where", lambda x, y: R.where(R.greater(x, y), x, y), (3, 5), (3, 5))


def _products() -> Iterator[Case]:
    shapes: tuple[tuple[Shape, Shape], ...] = (
        ((5, 7), (7, 3)),
        ((1, 1), (1, 1)),
        ((1, 64), (64, 10)),
        ((33, 65), (65, 17)),
        ((3, 4, 5), (3, 5, 6)),
        ((3, 4, 5), (5, 6)),
        ((2, 1, 4, 5), (3, 5, 6)),
        ((7,), (7, 3)),
        ((5, 7), (7,)),
        ((7,), (7,)),
    )
    for left, right in shapes:
        yield case("matmul", R.matmul, left, right)
    for dtype in ("float16", "float64", "int32"):
        yield case("matmul", R.matmul, (5, 7), (7, 3), dtype=dtype)
    yield case("matmul with itself", lambda x: R.matmul(x, x), (5, 5))
    yield case("matmul with a constant", lambda x: R.matmul(x, weights(7, 3)), (5, 7))
    yield case("matmul of bytes",
               lambda x: R.matmul(x, whole(7, 3), out_dtype="int32"), (5, 7), dtype="uint8")  # fmt: skip
    yield case("matmul of a transpose", lambda x, y: R.matmul(R.permute_dims(x), y), (7, 5), (7, 3))
    yield case("matmul, transpose", lambda x, y: R.permute_dims(R.matmul(x, y)), (5, 7), (7, 3))
    yield case("matmul+bias", lambda x, y, b: R.add(R.matmul(x, y), b), (5, 7), (7, 3), (3,))
    yield case("matmul+column", lambda x, y, b: R.add(R.matmul(x, y), b), (5, 7), (7, 3), (5, 1))
    yield case("matmul+bias+relu",
               lambda x: R.nn.relu(R.add(R.matmul(x, weights(7, 3)), weights(3))), (5, 7))  # fmt: skip
    yield case("matmul+residual+gelu",
               lambda x, y, r: R.nn.gelu(R.add(R.matmul(x, y), r)), (5, 7), (7, 3), (5, 3))  # fmt: skip
    yield case("scaled matmul",
               lambda x, y: R.multiply(R.matmul(x, y), R.const(0.125, "float32")), (5, 7), (7, 3))  # fmt: skip


def _convolutions() -> Iterator[Case]:
    def conv2d(**attrs: Any) -> Body:
        return lambda x, w: R.nn.conv2d(x, w, **attrs)

    channels_last: dict[str, Any] = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    yield case("conv2d", conv2d(), (1, 3, 7, 9), (5, 3, 3, 3))
    yield case("conv2d", conv2d(padding=1), (3, 4, 7, 7), (8, 4, 3, 3))
    yield case("conv2d 1x1", conv2d(), (1, 8, 5, 5), (16, 8, 1, 1))
    yield case("conv2d strides", conv2d(strides=2, padding=[0, 1, 2, 1]), (1, 3, 9, 8), (4, 3, 3, 3))
    yield case("conv2d dilation", conv2d(dilation=2), (1, 3, 9, 9), (4, 3, 3, 3))
    yield case("conv2d groups", conv2d(groups=2), (1, 4, 7, 7), (6, 2, 3, 3))
    yield case("conv2d depthwise", conv2d(groups=8, padding=1), (3, 8, 7, 7), (8, 1, 3, 3))
    yield case("conv2d NHWC", conv2d(padding=1, **channels_last), (1, 9, 7, 8), (16, 3, 3, 8))
    yield case("conv2d NHWC 1x1", conv2d(**channels_last), (3, 5, 5, 8), (16, 1, 1, 8))
    yield case("conv2d float16", conv2d(), (1, 3, 7, 7), (4, 3, 3, 3), dtype="float16")
    yield case("conv2d, constant weights, NHWC",
               lambda x: R.nn.conv2d(x, weights(16, 3, 3, 8), padding=1, **channels_last),
               (1, 9, 7, 8))  # fmt: skip
    yield case("conv2d+bias+relu",
               lambda x: R.nn.relu(R.add(R.nn.conv2d(x, weights(8, 3, 3, 3)), weights(1, 8, 1, 1))),
               (1, 3, 8, 8))  # fmt: skip
    yield case("conv2d+residual+relu",
               lambda x, w, r: R.nn.relu(R.add(R.nn.conv2d(x, w, padding=1), r)),
               (3, 4, 6, 6), (4, 4, 3, 3), (3, 4, 6, 6))  # fmt: skip
    yield case("conv1d", lambda x, w: R.nn.conv1d(x, w, padding=1), (3, 4, 9), (5, 4, 3))
    yield case("conv3d", lambda x, w: R.nn.conv3d(x, w), (1, 2, 5, 5, 5), (3, 2, 3, 3, 3))
    yield case("conv2d_transpose", lambda x, w: R.nn.conv2d_transpose(x, w, strides=2),
               (1, 4, 5, 5), (4, 3, 2, 2))  # fmt: skip


def _windows() -> Iterator[Case]:
    for name in ("max_pool2d", "avg_pool2d"):
        pool = getattr(nn, name)
        yield case(name, lambda x, pool=pool: pool(x, (3, 3), (2, 2), (1, 1)), (3, 4, 9, 9))
        yield case(f"{name} ceil",
                   lambda x, pool=pool: pool(x, (3, 3), (2, 2), ceil_mode=True), (1, 4, 8, 8))  # fmt: skip
        yield case(f"{name} NHWC",
                   lambda x, pool=pool: pool(x, (2, 2), (2, 2), layout="NHWC"), (1, 8, 6, 5))  # fmt: skip
    yield case("adaptive_avg_pool2d", lambda x: R.nn.adaptive_avg_pool2d(x, (1, 1)), (3, 5, 7, 7))
    yield case("resize2d", lambda x: R.image.resize2d(
        x, (8, 8), layout="NCHW", method="linear", coordinate_transformation_mode="half_pixel"),
        (1, 3, 4, 4))  # fmt: skip


def _rows() -> Iterator[Case]:
    for axis in (-1, 0, 1):
        yield case(f"softmax axis {axis}", lambda x, axis=axis: R.nn.softmax(x, axis), (3, 5, 7))
    yield case("softmax", R.nn.softmax, (1, 1000))
    yield case("log_softmax", R.nn.log_softmax, (3, 7))
    yield case("layer_norm", lambda x, g, b: R.nn.layer_norm(x, g, b, axes=[-1]), (3, 5, 16), (16,), (16,))
    yield case("rms_norm", lambda x, g: R.nn.rms_norm(x, g, axes=[-1]), (3, 16), (16,))
    yield case("group_norm",
               lambda x, g, b: R.nn.group_norm(x, g, b, 2, 1, [2, 3]), (3, 4, 5, 5), (4,), (4,))  # fmt: skip
    for name in ("sum", "mean", "max", "min", "variance"):
        reduce = getattr(R, name)
        yield case(name, lambda x, r=reduce: r(x, axis=[1]), (3, 5, 7))
        yield case(f"{name} keepdims", lambda x, r=reduce: r(x, axis=[2, 3], keepdims=True), (1, 8, 5, 5))
    yield case("sum of all", R.sum, (3, 5))
    yield case("argmax", lambda x: R.argmax(x, axis=1), (3, 7))
    yield case("cumsum", lambda x: R.cumsum(x, axis=1), (3, 7))


def _moves() -> Iterator[Case]:
    yield case("permute_dims", lambda x: R.permute_dims(x, [0, 2, 3, 1]), (3, 4, 5, 7))
    yield case("reshape", lambda x: R.reshape(x, (5, 21)), (3, 5, 7))
    yield case("concat", lambda x, y: R.concat((x, y), axis=1), (1, 3, 5, 5), (1, 4, 5, 5))
    yield case("concat of three", lambda x, y, z: R.concat((x, y, z), axis=0), (1, 5), (3, 5), (2, 5))
    yield case("split", lambda x: R.concat((bound(R.split(x, 2, axis=1))[1], x), axis=1), (3, 8))
    yield case("strided_slice", lambda x: R.strided_slice(x, [0, 1], [0, 1], [3, 6], [1, 2]), (3, 7))
    yield case("pad", lambda x: R.nn.pad(x, [0, 0, 1, 2]), (3, 5))
    yield case("broadcast_to", lambda x: R.broadcast_to(x, (3, 4, 5)), (4, 1))
    yield case("tile", lambda x: R.tile(x, (2, 3)), (3, 5))
    yield case("flip", lambda x: R.flip(x, axis=1), (3, 5))
    yield case("take", lambda x: R.take(x, relax.const(np.array([4, 0, 2], "int64")), axis=0), (5, 7))


def _unknown_shapes() -> Iterator[Case]:
    def rows() -> tirx.Var:
        return tirx.Var("n", "int64")

    yield Case("relu of n rows", lambda: function(R.nn.relu, [(rows(), 16)]))
    yield Case("matmul of n rows", lambda: function(R.matmul, [(rows(), 7), (7, 3)]))
    yield Case("add of an unknown shape", _unknown_rank)


def _recurrent() -> Iterator[Case]:
    """Layers of fixed steps, of free ones, and of a free batch as well."""
    for cell, options in (("lstm", {"keeps_memory": True}), ("gru", {"reverse": True}), ("rnn", {})):
        for free in ((), ("t",), ("t", "n")):
            name = " of free sizes " + ", ".join(free) if free else ""
            yield Case(f"{cell}{name}", partial(_layer, cell, options, free))


def _layer(cell: str, options: dict[str, Any], free: Sequence[str]) -> relax.Function:
    named = {name: tirx.Var(name, "int64") for name in free}
    steps, batch, hidden = named.get("t", 5), named.get("n", 3), 8
    width = operators.CELLS[cell].gates * hidden
    numbers = (
        weights(hidden, width).value.numpy() / 4
    )  # with larger ones a rounding error grows from step to step
    last = {"lstm": [(batch, hidden)], "gru": [(hidden,)], "rnn": []}[cell]

    def body(x: relax.Expr, *states: relax.Expr) -> relax.Expr:
        return getattr(operators, cell)(x, relax.const(numbers), *states, **options)

    return function(body, [(steps, batch, width), (batch, hidden), *last])


def _unknown_rank() -> relax.Function:
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=2))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(R.add(x, x))
        builder.emit_func_output(result)
    return builder.get()["main"]


CASES: tuple[Case, ...] = (
    *_elementwise(),
    *_products(),
    *_convolutions(),
    *_windows(),
    *_rows(),
    *_moves(),
    *_unknown_shapes(),
    *_recurrent(),
    *(Case(f"graph {name}", make) for name, make in graphs.GRAPHS.items()),
)
"""All cases: odd extents, batches of 1 and 3, scalars, broadcasts, and functions that must be declined."""
