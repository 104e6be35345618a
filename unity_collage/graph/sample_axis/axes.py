"""The axis of a value's samples, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax, tirx

from ..shapes import tensor_type


@dataclass(frozen=True, slots=True)
class SampleAxis:
    """An axis of ``outer * samples * each`` positions: position ``p`` belongs to sample ``p // each % samples``."""

    axis: int
    each: int = 1
    outer: int = 1

    def at(self, axis: int) -> SampleAxis:
        """The same samples, along another axis."""
        return SampleAxis(axis, self.each, self.outer)


Samples = SampleAxis | None
"""None: the value is the same whatever the inputs are."""


Operand = Samples | list["Operand"]
"""The samples of a value; of a tuple, those of each field."""


class Mixed(Exception):
    """A result may depend on several samples, or the axis of its samples is not known; the text is the reason."""


def has_samples(operand: Operand) -> bool:
    """Whether a value, or a field of a tuple, depends on the samples."""
    return any(map(has_samples, operand)) if isinstance(operand, list) else operand is not None


def rank_of(of: relax.Expr | ir.Type) -> int:
    """The number of axes of a tensor, 0 for a number; raises :class:`Mixed` if it is not known."""
    if isinstance(of, relax.Expr) and isinstance(of.ty, ir.PrimType):
        return 0
    rank = tensor_type(of).ndim
    if rank < 0:
        raise Mixed("the number of axes is not known")
    return rank


def dims_of(of: relax.Expr | ir.Type) -> list[ir.Expr]:
    """The extents of a tensor; raises :class:`Mixed` if they are not known."""
    shape = tensor_type(of).shape
    if not isinstance(shape, relax.ShapeExpr):
        raise Mixed("its shape is not known")
    return list(shape.values)


def is_one(dim: ir.Expr) -> bool:
    return isinstance(dim, tirx.IntImm) and dim.value == 1


def axes_in(value: Any, rank: int) -> list[int]:
    """An attribute that names axes, as numbers that are not negative; None means all."""
    if value is None:
        return list(range(rank))
    axes: Sequence[Any] = value if isinstance(value, Sequence) else [value]  # pyright: ignore[reportUnknownVariableType]
    return [int(axis) % max(rank, 1) for axis in axes]


def broadcast(operands: Sequence[tuple[ir.Type, Samples]], rank: int) -> Samples:
    """The samples of a result of ``rank`` axes, from operands that are aligned at their last axes."""
    found: set[SampleAxis] = set()
    for ty, samples in operands:
        if samples is not None:
            found.add(samples.at(samples.axis + rank - rank_of(ty)))
    if not found:
        return None
    if len(found) > 1:
        raise Mixed("its operands have their samples along different axes")
    (result,) = found
    for ty, samples in operands:
        own = result.axis - (rank - rank_of(ty))
        if samples is None and own >= 0 and not is_one(dims_of(ty)[own]):
            raise Mixed("an operand that is the same for all samples has an extent along their axis")
    return result


def some(samples: Samples, what: str = "an operand") -> SampleAxis:
    """The samples of a value that must have some."""
    if samples is None:
        raise Mixed(f"{what} is the same for all samples")
    return samples


def alone(operands: Sequence[Any]) -> SampleAxis:
    """The samples of the first operand, if no other operand has any."""
    if any(map(has_samples, operands[1:])):
        raise Mixed("an operand that is not its data depends on the samples")
    return some(operands[0])


def apart(samples: SampleAxis, axes: Sequence[int], what: str = "works") -> SampleAxis:
    """``samples``, if their axis is not among ``axes``."""
    if samples.axis in axes:
        raise Mixed(f"it {what} along the axis of the samples")
    return samples


def for_each(ty: relax.TupleType, found: SampleAxis) -> Operand:
    """The same samples for each field of a tuple."""
    return [found for _ in ty.fields]
