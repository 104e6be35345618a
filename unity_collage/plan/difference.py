"""``difference``: two plans of one function side by side, by the parts of the model that their kernels compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from .pairing import Kernels, own_names, paired
from .plan import Plan

LEAST_DIFFERENCE = 1e-3
"""If plans differ by less than this part of their cost, no shares of the difference are given."""


class Change(str, Enum):
    """How the kernels of two plans for one part of the model differ."""

    NONE = "same kernel"
    KERNEL = "other kernel"
    """The backend is the same, and the operators, the algorithm, the number of threads or the device differ."""
    BACKEND = "other backend"
    FUSION = "fused differently"
    """The kernels are of other groups of operators."""
    FIRST = "only in the first"
    SECOND = "only in the second"


@dataclass(frozen=True, slots=True)
class PartDifference:
    """The kernels of both plans that compute one part of the model."""

    change: Change
    first: Kernels
    second: Kernels

    @property
    def first_seconds(self) -> float:
        """The costs of the first plan's kernels, without launches and transitions."""
        return _seconds(self.first)

    @property
    def second_seconds(self) -> float:
        """The costs of the second plan's kernels, without launches and transitions."""
        return _seconds(self.second)

    @property
    def seconds(self) -> float:
        """By how much the second plan's kernels cost more; negative: they cost less."""
        return self.second_seconds - self.first_seconds

    @property
    def within_noise(self) -> bool:
        """Whether the measured intervals overlap, so that they cannot tell which kernels are faster."""
        (low, high), (other_low, other_high) = _interval(self.first), _interval(self.second)
        return other_low - high <= 0.0 <= other_high - low

    @property
    def layers(self) -> tuple[str, ...]:
        """What the kernels compute, as values of the model, each once."""
        kernels = (*self.first, *self.second)
        return tuple(dict.fromkeys(name for kernel in kernels for name in kernel.bindings))

    @property
    def layer(self) -> str:
        """The last value that they compute."""
        return (self.first or self.second)[-1].bindings[-1]


@dataclass(frozen=True, slots=True)
class BackendDifference:
    """The kernels of one backend in both plans."""

    backend: str
    first: Kernels
    second: Kernels

    @property
    def seconds(self) -> float:
        """By how much its kernels cost more in the second plan, because the kernels or their costs differ."""
        return _seconds(self.second) - _seconds(self.first)


@dataclass(frozen=True)
class PlanDifference:
    """Two plans of one function."""

    first: Plan
    second: Plan
    parts: tuple[PartDifference, ...] = ()
    """All parts, in the order of the first plan."""

    @property
    def has_costs(self) -> bool:
        """Whether the kernels of both plans have costs; otherwise there is no difference in seconds."""
        return self.first.has_costs and self.second.has_costs

    @property
    def is_apart(self) -> bool:
        """Whether both plans have kernels, and none of them computes a value of the other plan."""
        return bool(self.first.kernels and self.second.kernels) and not any(
            part.first and part.second for part in self.parts
        )

    @property
    def seconds(self) -> float:
        """By how much the second plan costs more, launches and transitions included; negative: it costs less."""
        return self.second.seconds - self.first.seconds

    @property
    def between_seconds(self) -> float:
        """The rest of the difference: launches, and transitions between backends."""
        return self.seconds - sum(part.seconds for part in self.parts)

    @property
    def measured_seconds(self) -> float | None:
        """By how much the whole second program takes longer; None where one of the two was not measured."""
        if self.first.measured_seconds is None or self.second.measured_seconds is None:
            return None
        return self.second.measured_seconds - self.first.measured_seconds

    @property
    def changed(self) -> tuple[PartDifference, ...]:
        """The parts with other kernels, the largest difference first."""
        return _largest_first(part for part in self.parts if part.change is not Change.NONE)

    @property
    def other_costs(self) -> tuple[PartDifference, ...]:
        """The parts with the same kernels whose costs differ, the largest difference first."""
        return _largest_first(part for part in self.parts if part.change is Change.NONE and part.seconds)

    @property
    def by_change(self) -> Mapping[Change, tuple[PartDifference, ...]]:
        """The parts by what has changed; kinds of changes that do not occur are left out."""
        found = {change: tuple(part for part in self.parts if part.change is change) for change in Change}
        return {change: parts for change, parts in found.items() if parts}

    @property
    def by_backend(self) -> tuple[BackendDifference, ...]:
        """The kernels by backend, the largest difference first."""
        kernels = (*self.first.kernels, *self.second.kernels)
        found = [
            BackendDifference(name, _of(self.first, name), _of(self.second, name))
            for name in dict.fromkeys(kernel.backend for kernel in kernels)
        ]
        return tuple(sorted(found, key=lambda one: -abs(one.seconds)))

    def share(self, seconds: float) -> float | None:
        """The part of ``seconds`` in the whole difference; None where the plans cost about the same.

        All parts and ``between_seconds`` add up to 1. A part with the opposite sign has a negative share.
        """
        if abs(self.seconds) <= LEAST_DIFFERENCE * max(self.first.seconds, self.second.seconds):
            return None
        return seconds / self.seconds


def difference(first: Plan, second: Plan) -> PlanDifference:
    """Two plans of one function, by the parts of the model that their kernels compute."""
    parts = (PartDifference(_change(*group), *group) for group in paired(first, second))
    return PlanDifference(first, second, tuple(parts))


def _change(first: Kernels, second: Kernels) -> Change:
    if not first:
        return Change.SECOND
    if not second:
        return Change.FIRST
    if not len(first) == len(second) == 1:
        return Change.FUSION
    one, other = first[0], second[0]
    if own_names(one) != own_names(other) and one.label != other.label:
        return Change.FUSION
    if one.backend != other.backend:
        return Change.BACKEND
    alike = (one.label, one.threads, one.device) == (other.label, other.threads, other.device)
    return Change.NONE if alike else Change.KERNEL


def _seconds(kernels: Kernels) -> float:
    return sum(kernel.seconds for kernel in kernels)


def _interval(kernels: Kernels) -> tuple[float, float]:
    intervals = [kernel.interval or (kernel.seconds, kernel.seconds) for kernel in kernels]
    return sum(low for low, _ in intervals), sum(high for _, high in intervals)


def _largest_first(parts: Iterable[PartDifference]) -> tuple[PartDifference, ...]:
    return tuple(sorted(parts, key=lambda part: -abs(part.seconds)))


def _of(plan: Plan, backend: str) -> Kernels:
    return tuple(kernel for kernel in plan.kernels if kernel.backend == backend)
