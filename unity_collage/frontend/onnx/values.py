"""The value of a name of an ONNX graph while it is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax, sym

from ...graph.shapes import tensor_type
from .arrays import STRINGS, UnsupportedType, constant_of

Dim = int | ir.Expr
"""A size: a number, or an expression of symbolic sizes."""


@dataclass(slots=True, eq=False)
class Value:
    """A tensor with elements that are known now, or only when the program runs.

    Known elements are a numpy array. Symbolic sizes are known, too: then the array's elements are objects, numbers or
    expressions, and ``dtype`` is their type. Known strings have the ``dtype`` "string", which no tensor may have.
    """

    dtype: str
    known: np.ndarray | None = None
    expr: relax.Expr | None = None

    @classmethod
    def of(cls, known: np.ndarray, dtype: str = "int64") -> Value:
        """A known tensor; ``dtype`` counts only for arrays of objects, which become numbers if all are numbers."""
        if known.dtype != object:
            return cls(known.dtype.name, known)
        flat = [_simple(item) for item in known.reshape(-1)]
        if any(isinstance(item, (str, bytes)) for item in flat):
            return cls("string", known)
        if all(isinstance(item, (int, np.integer)) for item in flat):
            return cls(dtype, np.array(flat, dtype).reshape(known.shape))
        made = np.empty(len(flat), object)
        made[:] = flat
        return cls(dtype, made.reshape(known.shape))

    @property
    def numbers(self) -> np.ndarray | None:
        """The elements if all are known numbers."""
        return None if self.known is None or self.known.dtype == object else self.known

    @property
    def shape(self) -> list[Dim]:
        """The sizes; the tensor's rank is known."""
        return list(self.known.shape) if self.known is not None else dims_of(self._computed())

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return self.known.ndim if self.known is not None else tensor_type(self._computed()).ndim

    def _computed(self) -> relax.Expr:
        assert self.expr is not None
        return self.expr

    def tensor(self, builder: relax.BlockBuilder) -> relax.Expr:
        """The tensor as an expression; symbolic sizes are computed when the program runs.

        Raises UnsupportedType for elements that no program has.
        """
        if self.dtype == "string":
            raise UnsupportedType(STRINGS)
        if self.expr is None:
            assert self.known is not None
            if self.known.dtype != object:
                self.expr = constant_of(self.known)
                return self.expr
            # Not kept: the binding may be inside a branch, and this value may be needed outside.
            flat = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr(list(self.known.reshape(-1)))))
            made = relax.op.reshape(flat, self.known.shape)
            return builder.emit(
                made if self.dtype == "int64" else relax.op.astype(builder.emit(made), self.dtype)
            )
        return self.expr


def dims_of(expr: relax.Expr) -> list[Dim]:
    """The sizes in the type of a tensor of known shape."""
    shape = tensor_type(expr).shape
    assert isinstance(shape, relax.ShapeExpr)
    return [_simple(dim) for dim in shape.values]


def _simple(dim: Any) -> Any:
    if isinstance(dim, ir.Expr):
        dim = dim if isinstance(dim, ir.Var) else sym.Analyzer().simplify(dim)
        return int(dim.value) if hasattr(dim, "value") and not isinstance(dim, ir.Var) else dim
    return dim
