"""What a rule may ask about the block it works in: definitions, constants, uses, shapes."""

from __future__ import annotations

from collections import Counter

import numpy as np
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from unity_collage.reference.values import tensor_value

GETITEM = "getitem"
"""The :func:`op_name` of a tuple projection."""


def op_name(expr: relax.Expr) -> str:
    """``relax.add`` and the like for a call of an operator, ``getitem`` for a projection, else ``""``."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
        return expr.op.name
    return GETITEM if isinstance(expr, relax.TupleGetItem) else ""


def static_shape(expr: relax.Expr) -> tuple[int, ...] | None:
    """The shape if every dimension is a known number."""
    shape = getattr(expr.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return static_dims(shape)


def static_dims(shape: relax.ShapeExpr) -> tuple[int, ...] | None:
    """The values of a shape expression if they are all known numbers."""
    if not all(isinstance(dim, tirx.IntImm) for dim in shape.values):
        return None
    return tuple(int(dim) for dim in shape.values)


def dtype_of(expr: relax.Expr) -> str:
    """The dtype of a tensor, ``""`` when it is unknown or ``expr`` is no tensor."""
    dtype = getattr(expr.ty, "dtype", None)
    return "" if dtype is None else str(getattr(dtype, "dtype", dtype))


def is_float(expr: relax.Expr) -> bool:
    """Whether ``expr`` is a tensor of a floating point type."""
    return "float" in dtype_of(expr)


class Scope:
    """The bindings seen so far in one dataflow block, and how often each is used."""

    def __init__(self, mod: IRModule | None = None):
        self.mod = mod
        """Where the functions are that the block calls."""
        self._values: dict[relax.Var, relax.Expr] = {}
        self._arrays: dict[relax.Expr, np.ndarray] = {}
        self.uses: Counter[relax.Var] = Counter()
        """Uses in this block; kept by the driver, and never below the truth for what it counts."""

    def define(self, var: relax.Var, value: relax.Expr) -> None:
        """Record what ``var`` is bound to."""
        self._values[var] = value

    def value(self, expr: relax.Expr) -> relax.Expr:
        """What a variable of this block is bound to; anything else is its own value."""
        return self._values.get(expr, expr) if isinstance(expr, relax.Var) else expr

    def call(self, expr: relax.Expr, *ops: str) -> relax.Call | None:
        """The call that defines ``expr`` if it is one of ``ops``."""
        value = self.value(expr)
        return value if isinstance(value, relax.Call) and op_name(value) in ops else None

    def own_call(self, expr: relax.Expr, *ops: str) -> relax.Call | None:
        """Like :meth:`call`, but only if nobody else reads ``expr``: changing it then copies no work."""
        return self.call(expr, *ops) if self.used_once(expr) else None

    def used_once(self, expr: relax.Expr) -> bool:
        """Whether ``expr`` is an inner variable of this block with one reader."""
        return isinstance(expr, relax.DataflowVar) and self.uses[expr] == 1

    def array(self, expr: relax.Expr) -> np.ndarray | None:
        """The value of a constant; not to be written to."""
        constant = self.value(expr)
        if not isinstance(constant, ir.GenericConst) or not isinstance(constant.ty, relax.TensorType):
            return None
        if constant not in self._arrays:
            self._arrays[constant] = tensor_value(constant.value)
        return self._arrays[constant]

    def scalar(self, expr: relax.Expr) -> float | None:
        """The number that a constant of one element holds."""
        if static_shape(expr) is None or self.size(expr) != 1:
            return None
        array = self.array(expr)
        return None if array is None else float(array.reshape(()))

    def size(self, expr: relax.Expr) -> int | None:
        """Number of elements, if known."""
        shape = static_shape(expr)
        return None if shape is None else int(np.prod(shape, dtype=np.int64))

    def prim_func(self, gvar: relax.Expr) -> tirx.PrimFunc | None:
        """The PrimFunc of that name in the module."""
        if self.mod is None or not isinstance(gvar, ir.GlobalVar) or gvar not in self.mod.functions:
            return None
        func = self.mod[gvar]
        return func if isinstance(func, tirx.PrimFunc) else None
