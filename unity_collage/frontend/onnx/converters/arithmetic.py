"""Division, remainder, power and shifts: where integers differ from floating point numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax, tirx

from ..node import Converted, OnnxNode
from .integer_power import integer_power
from .pointwise import Element, dtype_of, number, pointwise, select, widened


def _divide(node: OnnxNode) -> Converted:
    """Integers are divided towards zero; a division by zero, which the standard does not define, gives 0."""
    if _is_float(node.dtype()) or _divides(node.numbers(1)):
        return relax.op.divide(node[0], node[1])
    return pointwise(node, "divide", _quotient, node[0], node[1])


def _mod(node: OnnxNode) -> Converted:
    """The remainder with the sign of the divisor; with ``fmod``, with the sign of the dividend."""
    as_in_c = bool(node.attribute("fmod", 0))
    if _is_float(node.dtype()):
        return pointwise(node, "mod", widened(tirx.truncmod if as_in_c else _float_mod), node[0], node[1])
    if _divides(node.numbers(1)):
        return (relax.op.mod if as_in_c else relax.op.floor_mod)(node[0], node[1])
    return pointwise(node, "mod", _remainder if as_in_c else _floor_mod, node[0], node[1])


def _is_float(dtype: str) -> bool:
    return "float" in dtype


def _divides(divisor: np.ndarray | None) -> bool:
    """Whether no element is 0 or -1: x86 traps on a division by zero and on the lowest number divided by -1."""
    return divisor is not None and not np.isin(divisor, (0, -1)).any()


def _quotient(a: Element, b: Element) -> Element:
    dtype = dtype_of(a)
    zero = number(0, dtype)
    if dtype.startswith("uint"):
        return select(b.equal(zero), 0, tirx.truncdiv(a, select(b.equal(zero), 1, b)))
    unsafe = tirx.any(b.equal(zero), b.equal(number(-1, dtype)))
    found = tirx.truncdiv(a, select(unsafe, 1, b))
    return select(b.equal(zero), 0, select(unsafe, zero - a, found))


def _remainder(a: Element, b: Element) -> Element:
    dtype = dtype_of(a)
    unsafe = b.equal(number(0, dtype))
    if not dtype.startswith("uint"):
        unsafe = tirx.any(unsafe, b.equal(number(-1, dtype)))
    return select(unsafe, 0, tirx.truncmod(a, select(unsafe, 1, b)))


def _floor_mod(a: Element, b: Element) -> Element:
    found = _remainder(a, b)
    if dtype_of(a).startswith("uint"):
        return found
    return select(_differ_in_sign(found, b), found + b, found)


def _float_mod(a: Element, b: Element) -> Element:
    """As numpy: a zero has the sign of the divisor, and infinite divisors are allowed."""
    found, zero = tirx.truncmod(a, b), number(0, dtype_of(a))
    moved = select(_differ_in_sign(found, b), found + b, found)
    return select(moved.equal(zero), tirx.copysign(zero, b), moved)


def _differ_in_sign(a: Element, b: Element) -> Element:
    zero = number(0, dtype_of(a))
    return tirx.any(tirx.all(a > zero, b < zero), tirx.all(a < zero, b > zero))


def _pow(node: OnnxNode) -> Converted:
    """The result has the type of the base."""
    base, exponent = node.dtype(0), node.dtype(1)
    if _is_float(base) and base != "bfloat16":
        return relax.op.power(node[0], node.cast(node[1], base))
    if _is_float(base):
        return pointwise(node, "power", _wide_power, node[0], node[1])
    if _is_float(exponent):
        return pointwise(node, "power", _rounded_power, node[0], node[1])
    return integer_power(node)


def _wide_power(a: Element, b: Element) -> Element:
    return tirx.power(a.astype("float32"), b.astype("float32")).astype(dtype_of(a))


def _rounded_power(a: Element, b: Element) -> Element:
    """An integer to the power of a floating point number: computed in float64, rounded towards zero."""
    return tirx.power(a.astype("float64"), b.astype("float64")).astype(dtype_of(a))


def _shift(node: OnnxNode) -> Converted:
    """Shifts by a negative number, or by as many bits as there are or more, leave nothing but the sign."""
    right = node.required("direction") == "RIGHT"
    bits = np.dtype(node.dtype()).itemsize * 8

    def shifted(a: Element, b: Element) -> Element:
        dtype = dtype_of(a)
        # Not b < bits: TVM's simplifier fails on comparisons of uint32 with numbers.
        within = tirx.shift_right(b, number(bits.bit_length() - 1, dtype)).equal(number(0, dtype))
        by, zero = select(within, b, number(0, dtype)), number(0, dtype)
        made = (tirx.shift_right if right else tirx.shift_left)(a, by)
        rest = select(a < zero, -1, zero) if right and not dtype.startswith("uint") else zero
        return select(within, made, rest)

    return pointwise(node, "bit_shift", shifted, node[0], node[1])


def _image_scaler(node: OnnxNode) -> Converted:
    """x * scale + bias, with a bias for each channel: withdrawn, and still in files of old exporters."""
    scaled = node.emit(relax.op.multiply(node[0], node.constant(node.attribute("scale", 1.0), node.dtype())))
    bias = node.constant(node.required("bias"), node.dtype())
    return relax.op.add(scaled, node.reshaped(bias, [-1, *[1] * (node.rank() - 2)]))


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "BitShift": _shift,
    "Div": _divide,
    "ImageScaler": _image_scaler,
    "Mod": _mod,
    "Pow": _pow,
}
