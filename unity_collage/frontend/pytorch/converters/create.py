"""Operators that make tensors of numbers. With known shapes they are constants already; here shapes have variables."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from ..context import CallRefused, Context, Converter, Converters, Size, Value

Expr = relax.Expr


def _full(cx: Context, _shape: Value, value: Value, *_: Value) -> Expr:
    return cx.filled(cx.shape, value)


def _of(value: float) -> Converter:
    """The converter of operators that fill a tensor with ``value``; their arguments do not matter."""
    return lambda cx, *_: cx.filled(cx.shape, value)


def _scalar(cx: Context, value: Value, *_: Value) -> Expr:
    return cx.cast(value)


def _arange(cx: Context, start: Value, end: Value, step: Value = 1, *_: Value) -> Expr:
    """To an end that is not known: floats are counted as integers, so the first one and the step are integers."""
    if cx.dtype in ("int32", "int64"):
        return op.arange(start, end, step, cx.dtype)
    given = [
        int(value) if isinstance(value, float) and value.is_integer() else value
        for value in (start, end, step)
    ]
    if any(isinstance(value, float) for value in given):
        raise CallRefused("it counts in floats to an end that is not known")
    return cx.cast(cx.emit(op.arange(*given, "int64")))


def below_diagonal(cx: Context, rows: Size, columns: Size, diagonal: int = 0) -> Expr:
    """(rows, columns) of bool: which places are not above a diagonal, counted upwards from the main one."""
    if isinstance(rows, int) and isinstance(columns, int):
        return relax.const(np.tri(rows, columns, diagonal, dtype=bool), "bool")
    last, places = (cx.emit(op.arange(0, size, 1, "int64")) for size in (rows, columns))
    last = cx.emit(op.add(last, cx.cast(diagonal, "int64"))) if diagonal else last
    return cx.emit(op.less_equal(op.expand_dims(places, 0), op.expand_dims(last, 1)))


def _nothing(*_: Value) -> None:
    """Nothing in place of checks, which ``torch.export`` has made already."""


CONVERTERS: Converters = {
    **dict.fromkeys(
        ("full.default", "full_like.default", "fill.Scalar", "fill.Tensor", "new_full.default"), _full
    ),
    **{
        name: _of(0)
        for name in (
            "zeros.default",
            "zeros_like.default",
            "new_zeros.default",
            "zero.default",
            "empty.memory_format",
            "empty_like.default",
            "empty_permuted.default",
            "new_empty.default",
            "empty_strided.default",
            "new_empty_strided.default",
        )
    },
    **{name: _of(1) for name in ("ones.default", "ones_like.default", "new_ones.default")},
    "scalar_tensor.default": _scalar,
    "arange.default": lambda cx, end, *_: _arange(cx, 0, end),
    "arange.start": lambda cx, start, end, *_: _arange(cx, start, end),
    "arange.start_step": _arange,
    **dict.fromkeys(
        (
            "_assert_tensor_metadata.default",
            "_assert_scalar.default",
            "_assert_async.msg",
            "_assert_async.default",
            "sym_constrain_range.default",
            "sym_constrain_range_for_size.default",
        ),
        _nothing,
    ),
}
