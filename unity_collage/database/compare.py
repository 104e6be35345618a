"""Two databases side by side: which costs differ, and by how much."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .rows import CostRow


@dataclass(frozen=True, slots=True)
class Difference:
    """One kernel with different costs in two databases."""

    first: CostRow
    second: CostRow

    @property
    def ratio(self) -> float | None:
        """The second cost over the first; None when one of them is a refusal."""
        if not self.first.seconds or not self.second.seconds:
            return None
        return self.second.seconds / self.first.seconds


@dataclass(frozen=True, slots=True)
class DatabaseComparison:
    """How many kernels have equal costs in two databases, which differ, and how many are in only one of them."""

    apart: tuple[Difference, ...]
    """A cost against a refusal first, then by falling ratio."""
    alike: int
    only_first: int
    only_second: int


def compare(
    first: Iterable[CostRow], second: Iterable[CostRow], more_than: float, by_key: bool
) -> DatabaseComparison:
    """Costs that differ by a factor of more than 1 + ``more_than``, and refusals where the other has a cost.

    Two rows match if their workloads and fingerprints are equal. With ``by_key`` equal workloads are enough, and the
    newest row of each database counts: this compares two machines, or two versions of a library.
    """
    ours, theirs = _indexed(first, by_key), _indexed(second, by_key)
    pairs = [Difference(cost, theirs[name]) for name, cost in ours.items() if name in theirs]
    apart = sorted((pair for pair in pairs if _factor(pair) > 1 + more_than), key=_factor, reverse=True)
    common = len(pairs)
    return DatabaseComparison(tuple(apart), common - len(apart), len(ours) - common, len(theirs) - common)


def _indexed(costs: Iterable[CostRow], by_key: bool) -> dict[tuple[str, str], CostRow]:
    ordered = sorted(costs, key=lambda cost: (cost.created, cost.fingerprint))
    return {(cost.key, "" if by_key else cost.fingerprint): cost for cost in ordered}


def _factor(pair: Difference) -> float:
    """The ratio of the two costs, from 1 up; infinite for a cost and a refusal, 1 for two refusals."""
    if pair.ratio is not None:
        return max(pair.ratio, 1 / pair.ratio)
    return 1.0 if pair.first.seconds == pair.second.seconds else float("inf")
