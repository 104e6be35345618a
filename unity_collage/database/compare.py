"""Two databases side by side: which prices differ, and by how much."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .rows import Price


@dataclass(frozen=True, slots=True)
class Difference:
    """One kernel that two databases do not agree on."""

    first: Price
    second: Price

    @property
    def ratio(self) -> float | None:
        """The second price over the first; None when one of them is a refusal."""
        if not self.first.seconds or not self.second.seconds:
            return None
        return self.second.seconds / self.first.seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two databases have in common, and what not."""

    apart: tuple[Difference, ...]
    """Price against refusal first, then the largest ratio."""
    alike: int
    only_first: int
    only_second: int


def compare(first: Iterable[Price], second: Iterable[Price], more_than: float, by_key: bool) -> Comparison:
    """Prices that differ by a factor of more than 1 + ``more_than``, and refusals where the other has a price.

    Rows are the same when workload and fingerprint are; ``by_key``: when the workload is, the newest row of
    each side standing for it. So it compares two machines, or two versions of a library.
    """
    ours, theirs = _indexed(first, by_key), _indexed(second, by_key)
    pairs = [Difference(price, theirs[name]) for name, price in ours.items() if name in theirs]
    apart = sorted((pair for pair in pairs if _factor(pair) > 1 + more_than), key=_factor, reverse=True)
    common = len(pairs)
    return Comparison(tuple(apart), common - len(apart), len(ours) - common, len(theirs) - common)


def _indexed(prices: Iterable[Price], by_key: bool) -> dict[tuple[str, str], Price]:
    ordered = sorted(prices, key=lambda price: (price.created, price.fingerprint))
    return {(price.key, "" if by_key else price.fingerprint): price for price in ordered}


def _factor(pair: Difference) -> float:
    """How far apart, from 1 up; a price and a refusal are infinitely far, two refusals are equal."""
    if pair.ratio is not None:
        return max(pair.ratio, 1 / pair.ratio)
    return 1.0 if pair.first.seconds == pair.second.seconds else float("inf")
