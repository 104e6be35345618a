"""Decides by expected cost which sample sizes get a plan of their own. Plain data in and out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

Parts = tuple[int, int]
"""Two numbers of samples, whose sum is a batch."""

Copies = Callable[[int, Parts], float]
"""The seconds of slices and concatenations, if a number of samples is computed as these parts."""

LEAST_SAVING = 0.02
"""The part of the expected cost that a variant has to save."""
MOST_REGRET = 0.05
"""A variant also stays where the plan for all sizes would lose more than this part of the best static cost: the sum
over a range is nearly that of its largest sizes."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A variant for one sample size."""

    weight: float
    """The part of all calls that the sample stands for."""
    own: float
    """The cost of the plan that was found for this size alone."""
    shared: float = math.inf
    """The cost of the plan for all sizes there."""
    best: float = 0.0
    """The cost of the cheapest plan for this size alone, before ties were settled."""
    count: int = 0
    """The number of samples of a batch, where batches may be computed in parts."""


def worth_beside_shared(offers: Sequence[Offer], least_saving: float, most_regret: float) -> list[bool]:
    """Which of the variants stay beside one plan for all sizes.

    A variant stays if the shared plan would lose more than ``most_regret`` of the best cost there. Then the others are
    added, that with the greatest saving first. Each has to save at least ``least_saving`` of the expected total of all
    samples. So no variant that is left out would save as much of the final total.
    """
    savings = [offer.weight * (offer.shared - offer.own) for offer in offers]
    stays = [
        saving > 0 and offer.shared - offer.best > most_regret * offer.best
        for saving, offer in zip(savings, offers, strict=True)
    ]
    total = fsum(o.weight * (o.own if there else o.shared) for o, there in zip(offers, stays, strict=True))
    for place in sorted(range(len(offers)), key=lambda place: -savings[place]):
        if not stays[place] and savings[place] > 0 and savings[place] >= least_saving * total:
            stays[place] = True
            total -= savings[place]
    return stays


def worth_beside_parts(offers: Sequence[Offer], least_saving: float, copies: Copies) -> list[bool]:
    """Which of the variants stay where other batches are computed in parts; that for one sample always does.

    Variants are added one after the other, each time the one that saves most of the expected total. This ends when it
    would save less than ``least_saving`` of that total. One stays in any case if the copies that it would need have no
    cost.
    """
    stays = [offer.count == 1 for offer in offers]
    while (unknown := _unknown_in_parts(offers, stays, copies)) is not None:
        stays[unknown] = True
    total = expected_in_parts(offers, stays, copies)
    while not all(stays):
        totals = {
            place: expected_in_parts(offers, [s or n == place for n, s in enumerate(stays)], copies)
            for place, there in enumerate(stays)
            if not there
        }
        best = min(totals, key=lambda place: totals[place])
        if not totals[best] < total or total - totals[best] < least_saving * total:
            break
        stays[best], total = True, totals[best]
    return stays


def _unknown_in_parts(offers: Sequence[Offer], stays: Sequence[bool], copies: Copies) -> int | None:
    """The place of the smallest batch that cannot be computed in parts at a cost that is known."""
    own = {offer.count: offer.own for offer, there in zip(offers, stays, strict=True) if there}
    unknown = [n for n, each in enumerate(offers) if math.isinf(seconds_in_parts(each.count, own, copies))]
    return min(unknown, key=lambda place: offers[place].count, default=None)


def expected_in_parts(offers: Sequence[Offer], stays: Sequence[bool], copies: Copies) -> float:
    """The expected total if these variants stay and all other batches are computed in parts."""
    own = {offer.count: offer.own for offer, there in zip(offers, stays, strict=True) if there}
    return fsum(offer.weight * seconds_in_parts(offer.count, own, copies) for offer in offers)


def seconds_in_parts(count: int, own: Mapping[int, float], copies: Copies) -> float:
    """The cost of ``count`` samples: that of their variant, or those of two parts and of the copies."""
    if count in own:
        return own[count]
    parts = split_of(count, own)
    return fsum((copies(count, parts), *(seconds_in_parts(part, own, copies) for part in parts)))


def split_of(count: int, sizes: Iterable[int]) -> Parts:
    """The parts in which a batch without a variant is computed: the first is a multiple of the largest smaller size."""
    largest = max(size for size in sizes if size < count)
    middle = (count // largest + 1) // 2 * largest
    return middle, count - middle


def splits_of(count: int, sizes: Sequence[int]) -> dict[int, Parts]:
    """Each batch that has to be split for ``count`` samples, with its parts."""
    found: dict[int, Parts] = {}
    waiting = [count]
    while waiting:
        whole = waiting.pop()
        if whole not in sizes and whole not in found:
            found[whole] = split_of(whole, sizes)
            waiting += found[whole]
    return found
