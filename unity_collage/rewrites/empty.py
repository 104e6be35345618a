"""empty: a tensor without elements is known without computing it.

TVM's loops over an axis without elements do not build for all operators: not for a softmax, nor for weights that are
empty. Constants without elements cannot be written as text.

Normal form: ``zeros`` of the shape; ``full`` of NaN for a mean or a variance of no numbers, which TVM divides by their
count while it builds; ``full`` of 0 or 1 for a sum or a product of no numbers, of which TVM's loops write nothing.
"""

from __future__ import annotations

import math
from itertools import product

from tvm import relax

from .rewrite import ANY_OP, Rewrite
from .scope import Call, Expr, Scope, dims_of, dtype_of, is_float, op, op_name, static_shape

_ZEROS = "relax.zeros"
_KEPT = ("relax.builtin.", "relax.memory.", "relax.vm.", _ZEROS)


def is_empty(expr: Expr) -> bool:
    """Whether ``expr`` is a tensor that certainly has no elements."""
    return isinstance(expr.ty, relax.TensorType) and 0 in (static_shape(expr) or ())


def _empty(expr: Expr, scope: Scope) -> Expr | None:
    """Any operator with a result without elements -> zeros."""
    dtype = dtype_of(expr)
    if not is_empty(expr) or not dtype or _is_placed(expr) or op_name(expr).startswith(_KEPT):
        return None
    return op.zeros(static_shape(expr), dtype)


def _is_placed(expr: Expr) -> bool:
    return getattr(expr.ty, "vdevice", None) is not None


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


def _sum_of_nothing(call: Call, _scope: Scope) -> Expr | None:
    """A sum, product of matrices or convolution over no numbers -> 0; a product of no numbers -> 1."""
    dims, dtype = dims_of(call), dtype_of(call)
    if dims is None or not dtype or _is_placed(call) or is_empty(call) or not any(map(is_empty, call.args)):
        return None
    number = 1 if op_name(call) == "relax.prod" else 0
    return op.full(dims, relax.const(number, dtype), dtype)


_CONVOLUTIONS = [f"relax.nn.conv{rank}d{end}" for rank, end in product((1, 2, 3), ("", "_transpose"))]
SUMS_OF_NOTHING = Rewrite(
    "sums_of_nothing", ("relax.sum", "relax.prod", "relax.matmul", *_CONVOLUTIONS), _sum_of_nothing
)
