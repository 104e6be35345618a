"""empty: a tensor without elements is known without computing it.

TVM's loops over an axis without elements do not build for all operators: not for a softmax, nor for weights that are
empty. Constants without elements cannot be written as text.

Normal form: ``zeros`` of the shape; ``full`` of NaN for a mean or a variance of no numbers, which TVM divides by their
count while it builds.
"""

from __future__ import annotations

import math

from tvm import relax

from .rewrite import ANY_OP, Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name, static_shape

_ZEROS = "relax.zeros"
_KEPT = ("relax.builtin.", "relax.memory.", "relax.vm.", _ZEROS)


def is_empty(expr: Expr) -> bool:
    """Whether ``expr`` is a tensor that certainly has no elements."""
    return isinstance(expr.ty, relax.TensorType) and 0 in (static_shape(expr) or ())


def _empty(expr: Expr, scope: Scope) -> Expr | None:
    """Any operator with a result without elements -> zeros."""
    dtype = dtype_of(expr)
    is_placed = getattr(expr.ty, "vdevice", None) is not None
    if not is_empty(expr) or not dtype or is_placed or op_name(expr).startswith(_KEPT):
        return None
    return op.zeros(static_shape(expr), dtype)


WITHOUT_ELEMENTS = Rewrite("without_elements", (ANY_OP,), _empty)


def _mean_of_nothing(call: Call, _scope: Scope) -> Expr | None:
    """A mean, variance or deviation of no numbers -> NaN."""
    shape = static_shape(call)
    if shape is None or not is_float(call) or not is_empty(call.args[0]) or is_empty(call):
        return None
    return op.full(shape, relax.const(math.nan, dtype_of(call)), dtype_of(call))


MEANS_OF_NOTHING = Rewrite(
    "means_of_nothing", ("relax.mean", "relax.variance", "relax.std"), _mean_of_nothing
)
