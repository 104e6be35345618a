"""The element-wise functions that Relax and TIR have in common, by name.

Integer division truncates towards zero, as in TIR. ``maximum`` and ``minimum`` return NaN if either operand is NaN; TIR
returns the right one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unity_collage.reference.special import erf
from unity_collage.reference.values import truncated_divide


def _power(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """The power of each element; with one exponent for all numpy takes roots, which differ at -0 and -infinity."""
    shape = (1, *np.broadcast_shapes(np.shape(base), np.shape(exponent)))
    return np.power(np.broadcast_to(base, shape), np.broadcast_to(exponent, shape).copy())[0]


UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "bitwise_not": np.bitwise_not,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": lambda x: erf(np.asarray(x)),
    "exp": np.exp,
    "floor": np.floor,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "logical_not": np.logical_not,
    "negative": np.negative,
    "round": np.round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}

BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "atan2": np.arctan2,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "divide": truncated_divide,
    "equal": np.equal,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "left_shift": np.left_shift,
    "less": np.less,
    "less_equal": np.less_equal,
    "log_add_exp": np.logaddexp,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.fmod,
    "multiply": np.multiply,
    "not_equal": np.not_equal,
    "power": _power,
    "right_shift": np.right_shift,
    "subtract": np.subtract,
}
