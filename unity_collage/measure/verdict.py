"""The verdict on packed costs: do they agree with what a few kernels cost here?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from statistics import median

from ..cost.model import Workload
from ..plan.costs import UNKNOWN, Cost

SAMPLE = 8
"""How many kernels are compared to try a pack. Up to twice as many are measured, if others disturb some."""
LEAST = 5
"""With fewer kernels in the sample, nothing is said about a pack."""
SAMPLE_SECONDS = 3.0
"""The limit for measuring the sample.

After it no kernel starts if ``LEAST`` are measured, and after twice the limit none starts in any case.
"""
ALIKE = 0.1
"""How far a cost may be from the packed one after scaling to this machine.

On one shared machine with two cores, 17 of 20 kernels were within it when measured again after 80 minutes.
"""
_MOST = 0.75
"""The part of the sample that must agree: of eight kernels, other work on the machine may disturb two."""
_FAR = 99.0
"""The deviation of a kernel that has no cost here at all."""

Measure = Callable[[Workload], Cost]


@dataclass(frozen=True, slots=True)
class PackVerdict:
    """How the costs of a pack compare with those that were measured here."""

    ratio: float
    """The median of a cost here over the packed one."""
    deviation: float
    """``_MOST`` of the sample is within this part of the packed costs times ``ratio``."""
    sample: int
    """How many kernels were compared."""

    @property
    def why_not(self) -> str | None:
        """Why the pack is not used on this machine, or None where it is."""
        if self.deviation <= ALIKE:
            return None
        return (
            f"{_agreeing(self.sample)} of {self.sample} kernels measured here are within {self.deviation:.0%} of "
            f"{self.ratio:.2f} times their packed cost, and {ALIKE:.0%} is the limit"
        )

    def applied(self, cost: Cost) -> Cost:
        """A packed cost as it is expected here, with an interval as wide as the disagreement."""
        if cost.seconds is None:
            return cost
        wider = 1 + self.deviation
        return replace(
            cost,
            seconds=cost.seconds * self.ratio,
            low=min(cost.low, cost.seconds) * self.ratio / wider,
            high=max(cost.high, cost.seconds) * self.ratio * wider,
        )


def verdict_on(pairs: Iterable[tuple[Cost, Cost]]) -> PackVerdict | None:
    """The verdict for pairs of (packed cost, cost here); None: there are too few.

    Doubtful costs are ignored.
    """
    ratios = [
        (here.seconds or 0.0) / packed.seconds
        for packed, here in pairs
        if packed.seconds and not here.is_doubtful
    ]
    if len(ratios) < LEAST:
        return None
    middle = median(ratio for ratio in ratios if ratio) if any(ratios) else 1.0
    deviations = sorted(
        min(_FAR, max(ratio / middle, middle / ratio) - 1) if ratio else _FAR for ratio in ratios
    )
    return PackVerdict(middle, deviations[_agreeing(len(ratios)) - 1], len(ratios))


def spread(costs: Mapping[str, Cost], backends: Mapping[str, str], count: int) -> list[str]:
    """``count`` keys, one from each of as many parts of the range of ``costs``, and spread over the ``backends``.

    Every other key of the range comes first, so that a part of the list also spans the range.
    """
    ordered = sorted(costs, key=lambda key: (costs[key].seconds or 0.0, key))
    taken: Counter[str] = Counter()
    chosen: list[str] = []
    for number in range(count):
        part = ordered[number * len(ordered) // count : (number + 1) * len(ordered) // count]
        if part:
            key = min(part, key=lambda key: taken[backends[key]])
            taken[backends[key]] += 1
            chosen.append(key)
    return chosen[::2] + chosen[1::2]


class PackTrial:
    """A pack beside the costs of this machine: those that are known, and a sample that is measured."""

    def __init__(
        self, offered: Mapping[str, Cost], workloads: Mapping[str, Workload], own: Mapping[str, Cost]
    ):
        """``offered``: the packed costs of ``workloads``; ``own``: those that are known here. All are by key."""
        costed = {key: cost for key, cost in offered.items() if cost.seconds is not None}
        self._pairs = [
            (cost, own[key]) for key, cost in costed.items() if key in own and not own[key].is_doubtful
        ]
        self._unknown = {key: cost for key, cost in costed.items() if key not in own}
        self._workloads = workloads
        self._more = max(0, SAMPLE - len(self._pairs))

    @property
    def saves_time(self) -> bool:
        """Whether the pack offers more costs than have to be measured for its verdict."""
        return len(self._unknown) > self._more

    def measured(self, measure: Measure) -> dict[str, Cost]:
        """The costs of the sample, by key."""
        found: dict[str, Cost] = {}
        begin = time.monotonic()
        backends = {key: workload.backend for key, workload in self._workloads.items()}
        for key in spread(self._unknown, backends, 2 * self._more):
            limit = SAMPLE_SECONDS if len(self._pairs) >= LEAST else 2 * SAMPLE_SECONDS
            if len(self._pairs) >= SAMPLE or time.monotonic() - begin > limit:
                break
            cost = measure(self._workloads[key])
            if cost.origin == UNKNOWN:  # the budget is spent
                break
            found[key] = cost
            if not cost.is_doubtful:
                self._pairs.append((self._unknown[key], cost))
        return found

    def verdict(self) -> PackVerdict | None:
        """The verdict for what is known and what was measured."""
        return verdict_on(self._pairs)


def _agreeing(sample: int) -> int:
    return ceil(_MOST * sample)
