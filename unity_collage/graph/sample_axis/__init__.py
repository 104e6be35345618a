"""Whether a function computes each of its samples alone, so that a batch may be computed in parts.

A free dimension is the number of *samples* if each sample of each result depends on the same sample of the inputs only.
This is proved operator by operator (:mod:`.rules`); an operator without a rule becomes the reason of a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, relax, sym, tirx

from ..calls import op_name
from ..in_place import IN_PLACE
from .axes import Mixed, Operand, SampleAxis, Samples, dims_of, has_samples, is_one, rank_of
from .rules import FILLED, RULES

__all__ = ["Mixed", "SampleAxes", "SampleAxis", "sample_axes"]


@dataclass(frozen=True, slots=True)
class SampleAxes:
    """The axes of the samples of a function's inputs and results."""

    params: tuple[Samples, ...]
    """None: the input is the same for all samples."""
    results: tuple[SampleAxis, ...]
    """One for the result, or one for each field of a tuple."""
    is_tuple: bool = False
    """Whether the result is a tuple."""


def sample_axes(func: relax.Function, samples: tirx.Var) -> SampleAxes:
    """The axes of the samples of ``func``; their number is the dimension ``samples``.

    Raises :class:`Mixed` with the reason if a result may depend on several samples or on their number.
    """
    walk = _Walk(samples)
    params = tuple(walk.of_param(param) for param in func.params)
    for block in func.body.blocks:
        for binding in block.bindings:
            walk.bind(binding)
    found = walk.value(func.body.body)
    fields = found if isinstance(found, list) else [found]
    results = [each for each in fields if isinstance(each, SampleAxis) and each.outer == 1]
    if len(results) < len(fields):
        raise Mixed("a result does not hold its samples in a row")
    if not any(each is not None and each.each == 1 for each in params):
        raise Mixed("no input has one position for each sample")
    return SampleAxes(params, tuple(results), isinstance(found, list))


@dataclass
class _Walk:
    samples: tirx.Var
    values: dict[relax.Var, Operand] = field(default_factory=dict[relax.Var, "Operand"])
    analyzer: sym.Analyzer = field(default_factory=sym.Analyzer)

    def of_param(self, param: relax.Var) -> Samples:
        try:
            found = self._by_type(param.ty)
        except Mixed as error:
            raise Mixed(f"input {param.name}: {error}") from None
        self.values[param] = found
        return found

    def bind(self, binding: relax.Binding) -> None:
        value = binding.value
        try:
            self.values[binding.var] = self._checked(self._value_of(value), binding.var.ty)
        except Mixed as error:
            name = op_name(value).removeprefix("relax.") or type(value).__name__
            raise Mixed(f"{name} ({binding.var.name}): {error}") from None

    def value(self, expr: relax.Expr) -> Operand:
        """The samples of a variable or constant, or a list of those of a tuple's fields."""
        if isinstance(expr, relax.Var):
            return self.values.get(expr)  # a size has none
        if isinstance(expr, relax.Tuple):
            return [self.value(each) for each in expr.fields]
        return None

    def _value_of(self, value: relax.Expr) -> Operand:
        if isinstance(value, relax.Call):
            return self._called(value)
        if self._tells_number(value) and not self._mentions(value.ty):
            raise Mixed("it names their number")  # the type of the variable would not tell it
        if isinstance(value, relax.TupleGetItem):
            fields = self.value(value.tuple_value)
            return fields[value.index] if isinstance(fields, list) else None
        if isinstance(value, relax.Var | relax.Tuple | ir.Constant | relax.ShapeExpr):
            return self.value(value)
        raise Mixed("it is no operator")

    def _called(self, call: relax.Call) -> Operand:
        name = op_name(call)
        if not name:
            raise Mixed("it is no operator")
        if name in IN_PLACE:
            raise Mixed("it changes memory in place, and each part would change it again")
        if name not in FILLED | _SHAPED and any(map(self._tells_number, call.args)):
            raise Mixed("it depends on their number")
        operands = [self.value(arg) for arg in call.args]
        if not any(map(has_samples, operands)):
            return self._filled(call) if self._mentions(call.ty) else None
        if name not in RULES:
            raise Mixed("how it treats samples is not known")
        return RULES[name](call, operands)

    def _filled(self, call: relax.Call) -> Operand:
        """The samples of a value that is written at all positions."""
        if isinstance(call.ty, relax.ShapeType):
            return None
        if op_name(call) not in FILLED:
            raise Mixed("it depends on their number")
        found = self._by_type(call.ty)
        assert found is not None
        for arg in call.args:
            own = found.axis - rank_of(call) + rank_of(arg) if isinstance(arg.ty, relax.TensorType) else -1
            if own >= 0 and not is_one(dims_of(arg)[own]):
                raise Mixed("it repeats a value that has an extent along the axis of the samples")
        return found

    def _by_type(self, ty: ir.Type) -> Samples:
        """The samples that follow from the shape of a type."""
        if not self._mentions(ty):
            return None
        if not isinstance(ty, relax.TensorType):
            raise Mixed("it is no tensor")
        dims = dims_of(ty)
        (axis, *more) = [i for i, dim in enumerate(dims) if self._mentions(dim)]
        if more:
            raise Mixed("two axes depend on their number")
        return SampleAxis(axis, self._each(dims[axis]))

    def _each(self, dim: ir.Expr) -> int:
        """The number of positions for each sample."""

        def one(var: tirx.Var) -> ir.Expr:
            return tirx.const(1, "int64") if var.same_as(self.samples) else var

        substituted: Any = tvm_ffi.structural_map  # type: ignore[reportUnknownMemberType]
        at_one = self.analyzer.simplify(substituted(dim, [(tirx.Var, one)]))
        if isinstance(at_one, tirx.IntImm):
            each = int(at_one.value)
            if self.analyzer.can_prove_equal(dim, self.samples * each):
                return each
        raise Mixed(f"the extent {dim} is not a multiple of their number")

    def _checked(self, found: Operand, ty: ir.Type) -> Operand:
        """``found``, if the shapes agree with it."""
        if isinstance(ty, relax.TupleType):
            fields = found if isinstance(found, list) else [None] * len(ty.fields)
            return [self._checked(each, of) for each, of in zip(fields, ty.fields, strict=True)]
        if isinstance(ty, relax.TensorType) and _extent(found) != _extent(self._by_type(ty)):
            raise Mixed("its shape and its operands tell different samples")
        return found

    def _tells_number(self, arg: relax.Expr) -> bool:
        """Whether the number of samples is in an operand as a number: in a size or a shape, or in a tuple of them."""
        if isinstance(arg, relax.Tuple):
            return any(map(self._tells_number, arg.fields))
        return self._mentions_in_shapes(arg.ty) or (
            not isinstance(arg.ty, relax.TensorType | relax.TupleType) and self._mentions(arg)
        )

    def _mentions_in_shapes(self, ty: ir.Type) -> bool:
        """Whether the number of samples is in a type that is not that of a tensor."""
        if isinstance(ty, relax.TupleType):
            return any(map(self._mentions_in_shapes, ty.fields))
        return not isinstance(ty, relax.TensorType) and self._mentions(ty)

    def _mentions(self, *nodes: Any) -> bool:
        """Whether the number of samples is in one of these types or expressions."""
        found: list[tirx.Var] = []

        def visit(var: tirx.Var) -> None:
            if var.same_as(self.samples):
                found.append(var)

        walk: Any = tvm_ffi.structural_walk  # type: ignore[reportUnknownMemberType]
        for node in nodes:
            walk(node, [(tirx.Var, visit)])
        return bool(found)


_SHAPED = frozenset(f"relax.{name}" for name in ("reshape", "broadcast_to"))
"""Operators with the shape of their result as operand; the shape is checked by itself."""


def _extent(samples: Operand) -> tuple[int, int] | None:
    """The axis, and how many positions it has for each sample."""
    return (samples.axis, samples.outer * samples.each) if isinstance(samples, SampleAxis) else None
