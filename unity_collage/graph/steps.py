"""Values that must be exact to the last bit, since a later operator rounds or compares them.

``floor(x / 41)`` is another integer if the quotient is slightly too small. The buckets of T5's relative positions are
such a case: ``int(8 * log(n / 8) / log(16))`` is 2 for n = 16, and 1 with a logarithm that is off by one millionth.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvm import relax

from .calls import op_name
from .dataflow import used_vars
from .shapes import dtype_of

_STEPS = frozenset(
    f"relax.{name}"
    for name in (
        "bucketize", "ceil", "equal", "floor", "floor_divide", "floor_mod", "greater", "greater_equal", "less",
        "less_equal", "mod", "not_equal", "round", "sign", "trunc",
    )
)  # fmt: skip
"""Operators with a result that may jump if an operand changes by a bit, apart from conversions to integers.

``quantize`` is not among them: its results are measurements, a step apart, not indexes or decisions."""

_KEEPING = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "acos", "acosh", "add", "asin", "asinh", "astype", "atan", "atan2", "atanh", "broadcast_to", "clip",
        "concat", "cos", "cosh", "divide", "erf", "ewise_fma", "exp", "expand_dims", "flatten", "flip",
        "gather_elements", "gather_nd", "layout_transform", "log", "log_add_exp", "max", "maximum", "min", "minimum",
        "multiply", "negative", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.pad", "nn.prelu", "nn.relu", "nn.relu6",
        "nn.selu", "nn.silu", "nn.softplus", "permute_dims", "power", "repeat", "reshape", "rsqrt", "sigmoid", "sin",
        "sinh", "split", "sqrt", "square", "squeeze", "stack", "strided_slice", "subtract", "take", "tan", "tanh",
        "tile", "tril", "triu", "where",
    )
)  # fmt: skip
"""Operators that compute an element of the result from few elements, so that its last bits depend on theirs.

Sums are not among them: their last bits depend on the order, which no toolchain promises.
"""


def before_steps(bindings: Iterable[relax.Binding]) -> set[relax.Var]:
    """The variables of the ordered ``bindings`` with last bits that decide to which value a later binding jumps."""
    found: set[relax.Var] = set()
    for binding in reversed(list(bindings)):
        passes_on = binding.var in found and _keeps(binding.value)
        if passes_on or _is_step(binding.value):
            found.update(used_vars(binding.value))
    return found


def _keeps(value: relax.Expr) -> bool:
    return not isinstance(value, relax.Call) or op_name(value) in _KEEPING


def _is_step(value: relax.Expr) -> bool:
    name = op_name(value)
    if name in _STEPS or not isinstance(value, relax.Call):
        return name in _STEPS
    is_conversion = name == "relax.call_tir" or (name == "relax.astype" and is_float(value.args[0]))
    return is_conversion and isinstance(value.ty, relax.TensorType) and not is_float(value)


def is_float(expr: relax.Expr) -> bool:
    """Whether a tensor has floating-point elements."""
    return "float" in dtype_of(expr)
