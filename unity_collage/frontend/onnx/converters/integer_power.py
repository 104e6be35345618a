"""Integers to the power of integers, by squaring."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..node import OnnxNode
from .pointwise import Element, dtype_of, number, pointwise, select
from .runtime_shapes import computed, product


def integer_power(node: OnnxNode) -> relax.Expr:
    """The power with the type of the base, which wraps. Exponents below zero give fractions, rounded towards zero."""
    base = node.emit(pointwise(node, "base", lambda a, _: a, node[0], node[1]))
    exponent = node.emit(pointwise(node, "exponent", lambda _, b: b.astype("int64"), node[0], node[1]))
    shape = node.dims(base)
    operands = [node.reshaped(x, [product(shape)]) for x in (base, exponent)]
    found = node.reshaped(computed(node, _powers, *operands), shape)
    if node.dtype(1).startswith("uint"):
        return found
    return pointwise(node, "power", _below_zero, found, base, exponent)


def _powers(base: te.Tensor, exponent: te.Tensor) -> te.Tensor:
    return te.extern(
        [base.shape],
        [base, exponent],
        lambda ins, outs: _by_squaring(ins[0], ins[1], outs[0], base.shape[0], str(base.dtype)),
        dtype=[base.dtype],
        name="integer_power",
    )


def _by_squaring(base: Any, exponent: Any, found: Any, count: Any, dtype: str) -> Any:
    """Each bit of the exponent multiplies the result by the square that belongs to it."""
    with IRBuilder() as builder:
        base, exponent, found = (T.buffer_proxy(buffer) for buffer in (base, exponent, found))
        with T.serial(0, count) as n:
            square = T.buffer_proxy(T.alloc_buffer((1,), dtype, scope="local"))
            square[0] = base[n]
            found[n] = tirx.const(1, dtype)
            with T.serial(0, 64) as bit:
                shifted = tirx.shift_right(exponent[n], bit.astype("int64"))
                is_set = tirx.bitwise_and(shifted, tirx.const(1, "int64")).equal(tirx.const(1, "int64"))
                found[n] = tirx.Select(is_set, found[n] * square[0], found[n])
                square[0] = square[0] * square[0]
        return builder.get()


def _below_zero(found: Element, base: Element, exponent: Element) -> Element:
    """``found`` unless the exponent is negative: then the powers of numbers other than 1 and -1 are fractions, rounded
    to 0."""
    dtype = dtype_of(base)
    one, zero, odd = number(1, dtype), number(0, dtype), number(1, "int64")
    fraction = select(base.equal(one), 1, zero)
    if not dtype.startswith("uint"):
        sign = select(tirx.bitwise_and(exponent, odd).equal(odd), -1, one)
        fraction = select(base.equal(number(-1, dtype)), sign, fraction)
    return select(exponent < number(0, "int64"), fraction, found)
