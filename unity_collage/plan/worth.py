"""Decides by expected cost which sample sizes get a plan of their own. Plain data in and out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

LEAST_SAVING = 0.02
"""The part of the expected cost that a variant has to save."""
MOST_REGRET = 0.03
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
    """The cost of the plan for all sizes there; infinite where it is not known."""
    best: float = 0.0
    """The cost of the cheapest plan for this size alone, before ties were settled."""


def worth_beside_shared(offers: Sequence[Offer], least_saving: float, most_regret: float) -> list[bool]:
    """Which of the variants stay beside one plan for all sizes.

    A variant stays if the cost of the shared plan there is not known, or is more than ``most_regret`` above the best
    one. Then the others are added, that with the greatest saving first. Each has to save at least ``least_saving`` of
    the expected total of all samples. So no variant that is left out would save as much of the final total.
    """
    savings = [offer.weight * (offer.shared - offer.own) for offer in offers]
    stays = [
        offer.shared == math.inf or (saving > 0 and offer.shared - offer.best > most_regret * offer.best)
        for saving, offer in zip(savings, offers, strict=True)
    ]
    total = fsum(o.weight * (o.own if there else o.shared) for o, there in zip(offers, stays, strict=True))
    for place in sorted(range(len(offers)), key=lambda place: -savings[place]):
        if not stays[place] and savings[place] > 0 and savings[place] >= least_saving * total:
            stays[place] = True
            total -= savings[place]
    return stays
