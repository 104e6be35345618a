"""The forms in which the new program holds a value of the original program."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax import Expr

from .axes import Dim, Layout, plain


@dataclass(slots=True)
class Tensor:
    """A tensor, with one expression for each layout in which it exists so far.

    The first form is the layout in which it was computed.
    """

    type: relax.TensorType
    """Its type in the original program."""
    forms: dict[Layout, Expr]
    views: dict[Layout, Expr] = field(default_factory=dict)
    """Further forms that exist, but do not count as a reason to compute in their layout."""
    name: str = "t"

    @property
    def rank(self) -> int:
        return self.type.ndim

    @property
    def native(self) -> Layout:
        """The layout in which the value was computed."""
        return next(iter(self.forms))

    @property
    def is_plain(self) -> bool:
        return self.native == plain(self.rank)

    @property
    def constant(self) -> ir.GenericConst | None:
        """The tensor as a literal, or None if it is not one."""
        expr = self.forms.get(plain(self.rank))
        return expr if isinstance(expr, ir.GenericConst) else None

    @property
    def is_constant(self) -> bool:
        return self.constant is not None

    @property
    def extents(self) -> list[Expr] | None:
        """The original shape, or None when only its rank is known."""
        shape = self.type.shape
        return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None

    @property
    def dims(self) -> list[Dim] | None:
        """The original shape as plain data."""
        extents = self.extents
        return None if extents is None else [dim_of(extent) for extent in extents]

    def is_unit(self, axis: int) -> bool:
        """Whether the original ``axis`` is known to have extent one."""
        shape = self.type.shape
        extent = shape.values[axis] if isinstance(shape, relax.ShapeExpr) else None
        return isinstance(extent, tirx.IntImm) and extent.value == 1

    @property
    def is_single(self) -> bool:
        """Whether it is known to hold one element, which broadcasts the same in any layout."""
        return all(self.is_unit(axis) for axis in range(self.rank))

    @property
    def weight(self) -> int:
        """How many elements a transpose moves; a symbolic extent counts as one."""
        return prod(dim.number for dim in self.dims or ())


@dataclass(slots=True)
class Pack:
    """A tuple by its fields or, without fields, a value that has no layout."""

    fields: list[Value]
    whole: Expr | None = None
    """The expression with every field plain, when there is one."""


Value = Tensor | Pack


def fresh(expr: Expr, type_: ir.Type | None = None, name: str = "t") -> Value:
    """The value of an expression that is the same as in the original program."""
    type_ = type_ or expr.ty
    if isinstance(type_, relax.TensorType) and type_.ndim >= 0:
        return Tensor(type_, {plain(type_.ndim): expr}, name=name)
    if isinstance(type_, relax.TupleType):
        return Pack(projections(expr, type_, name), whole=expr)
    return Pack([], whole=expr)


def projections(whole: Expr, type_: relax.TupleType, name: str) -> list[Value]:
    """The fields of a tuple expression, none of them bound yet."""
    fields = enumerate(type_.fields)
    return [fresh(relax.TupleGetItem(whole, i), field, f"{name}_{i}") for i, field in fields]


def dim_of(extent: Expr) -> Dim:
    """An extent as plain data: a symbol is named by its structural hash, so equal ones have equal names."""
    if isinstance(extent, tirx.IntImm):
        return Dim(extent.value)
    if isinstance(extent, tirx.Mul):
        return dim_of(extent.a) * dim_of(extent.b)
    return Dim(1, (tvm_ffi.structural_hash(extent),))
