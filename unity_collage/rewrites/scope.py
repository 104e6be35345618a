"""What a rule may ask about the block it works in: definitions, constants, uses, shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeGuard

import numpy as np
from tvm import ir, relax, tirx
from tvm.ir import Call, Expr, IRModule
from tvm.relax import op

from ..graph.shapes import tensor_type
from ..reference.values import tensor_value
from .why_not import WhyNot

__all__ = [
    "GETITEM",
    "Call",
    "Expr",
    "Scope",
    "dims_of",
    "dtype_of",
    "is_constant",
    "is_float",
    "op",
    "op_name",
    "rank_of",
    "static_dims",
    "static_shape",
    "static_sizes",
]

GETITEM = "getitem"
"""The :func:`op_name` of a tuple projection."""


def op_name(expr: Expr) -> str:
    """``relax.add`` and the like for a call of an operator, ``getitem`` for a projection, else ``""``."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
        return str(getattr(expr.op, "name", ""))
    return GETITEM if isinstance(expr, relax.TupleGetItem) else ""


def static_shape(expr: Expr) -> tuple[int, ...] | None:
    """The shape if every dimension is a known number."""
    shape = getattr(expr.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return static_dims(shape)


def static_dims(shape: relax.ShapeExpr) -> tuple[int, ...] | None:
    """The values of a shape expression if they are all known numbers."""
    known = [int(dim) for dim in shape.values if isinstance(dim, tirx.IntImm)]
    return tuple(known) if len(known) == len(shape.values) else None


def dims_of(expr: Expr) -> list[Expr] | None:
    """The sizes of the axes of a tensor, which may be symbolic; None where the rank is not known."""
    shape = getattr(expr.ty, "shape", None)
    return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None


def static_sizes(expr: Expr, axes: Sequence[int]) -> list[int] | None:
    """The sizes of these axes of a tensor if they are known numbers; others may be symbolic."""
    dims = dims_of(expr)
    sizes = [] if dims is None else [dims[axis] for axis in axes]
    known = [int(size) for size in sizes if isinstance(size, tirx.IntImm)]
    return None if dims is None or len(known) < len(axes) else known


def rank_of(expr: Expr) -> int:
    """How many axes a tensor has; -1 when it is unknown."""
    return tensor_type(expr).ndim


def dtype_of(expr: Expr) -> str:
    """The dtype of a tensor, ``""`` when it is unknown or ``expr`` is not a tensor."""
    dtype = getattr(expr.ty, "dtype", None)
    return "" if dtype is None else str(getattr(dtype, "dtype", dtype))


def is_float(expr: Expr) -> bool:
    """Whether ``expr`` is a tensor of a floating point type."""
    return "float" in dtype_of(expr)


def is_constant(expr: Expr) -> TypeGuard[ir.GenericConst]:
    """Whether ``expr`` is a tensor that is written in the program."""
    return isinstance(expr, ir.GenericConst) and isinstance(expr.ty, relax.TensorType)


class Scope:
    """The bindings seen so far in one dataflow block, and how often each is used."""

    def __init__(self, mod: IRModule | None = None):
        self.mod = mod
        """The module with the functions that the block calls."""
        self._values: dict[relax.Var, Expr] = {}
        self._arrays: dict[Expr, np.ndarray] = {}
        self.folded: dict[Hashable, Expr] = {}
        """The constants that were computed, by the number of the value that each stands for."""
        self.uses: Counter[relax.Var] = Counter()
        """Uses in this block; the driver keeps them up to date, and never undercounts."""
        self.before_steps: set[relax.Var] = set()
        """Variables whose last bits matter (:mod:`unity_collage.graph.steps`)."""

    def define(self, var: relax.Var, value: Expr) -> None:
        """Record what ``var`` is bound to."""
        self._values[var] = value

    def forget(self, var: relax.Var) -> None:
        """Remove the definition of ``var``: memory that it reads has changed."""
        self._values.pop(var, None)

    def is_defined(self, var: relax.Var | None) -> bool:
        """Whether it is recorded what ``var`` is bound to."""
        return var in self._values

    def value(self, expr: Expr) -> Expr:
        """What a variable of this block is bound to; anything else is its own value."""
        return self._values.get(expr, expr) if isinstance(expr, relax.Var) else expr

    def call(self, expr: Expr, *ops: str) -> Call | None:
        """The call that defines ``expr`` if it is one of ``ops``."""
        value = self.value(expr)
        return value if isinstance(value, relax.Call) and op_name(value) in ops else None

    def own_call(self, expr: Expr, *ops: str) -> Call | None:
        """Like :meth:`call`, but only if nothing else reads ``expr``: changing it then copies no work."""
        return self.call(expr, *ops) if self.used_once(expr) else None

    def own(self, expr: Expr, *ops: str, matched: int = 1) -> Call | WhyNot | None:
        """Like :meth:`own_call`, but a call that is read elsewhere too is a near miss, with ``matched`` operators."""
        call = self.call(expr, *ops)
        why = None if call is None else self.why_not_own(expr)
        return call if why is None else WhyNot(why, matched)

    def used_once(self, expr: Expr) -> bool:
        """Whether ``expr`` is an inner variable of this block with one reader."""
        return isinstance(expr, relax.DataflowVar) and self.uses[expr] == 1

    def why_not_own(self, expr: Expr) -> str | None:
        """Why something else reads ``expr`` too, so that changing it would copy work; None if nothing does."""
        if self.used_once(expr):
            return None
        if not isinstance(expr, relax.DataflowVar):
            return f"{self.title(expr)} is read outside of its block too, and must have no other reader"
        return f"{self.title(expr)} is read {self.uses[expr]} times, and must have no other reader"

    def why_exact(self, expr: Expr) -> str | None:
        """Why a rule may not change the last bits of ``expr``, or None."""
        if expr not in self.before_steps:
            return None
        return f"{self.title(expr)} becomes a step further on, where its last bits matter"

    def title(self, expr: Expr) -> str:
        """``expr`` in a reason: its name, and in brackets the operator that computes it."""
        name = str(getattr(expr, "name", "")) or "a constant"
        computed = op_name(self.value(expr))
        return f"{name} ({computed.removeprefix('relax.')})" if computed else name

    def array(self, expr: Expr) -> np.ndarray | None:
        """The value of a constant; not to be written to."""
        constant = self.value(expr)
        if not is_constant(constant):
            return None
        if constant not in self._arrays:
            self._arrays[constant] = tensor_value(constant.value)
        return self._arrays[constant]

    def scalar(self, expr: Expr) -> float | None:
        """The number that a constant of one element holds."""
        if static_shape(expr) is None or self.size(expr) != 1:
            return None
        array = self.array(expr)
        return None if array is None else float(array.reshape(()))

    def size(self, expr: Expr) -> int | None:
        """Number of elements, if known."""
        shape = static_shape(expr)
        return None if shape is None else int(np.prod(shape, dtype=np.int64))

    def prim_func(self, gvar: Expr) -> tirx.PrimFunc | None:
        """The PrimFunc of that name in the module."""
        if self.mod is None or not isinstance(gvar, ir.GlobalVar) or gvar not in self.mod.functions:
            return None
        func = self.mod[gvar]
        return func if isinstance(func, tirx.PrimFunc) else None
