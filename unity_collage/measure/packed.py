"""Packed costs: those of another machine of the processor's family, where a sample that is measured here agrees.

A pack may come from a machine that has another clock, slower memory or noisy neighbours. So the first compile on a
machine measures a few of the kernels that it asks for. A machine that is faster or slower as a whole shows as one
ratio, and the packed costs are scaled by it. Where the ratios differ between kernels the pack is of another kind of
machine, and nothing of it is used.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import ceil
from statistics import median

from ..cost.fingerprint import of_family
from ..cost.model import Workload
from ..database.costs import CostDatabase
from ..database.packs import Pack, keep, kept, shipped
from ..errors import DatabaseError
from ..machine.fingerprint import differences, fields_of
from ..plan.costs import UNKNOWN, Cost
from .questions import Fingerprints

LOGGER = logging.getLogger(__name__)

SAMPLE = 8
"""How many kernels are measured to try a pack."""
LEAST = 5
"""With fewer kernels in the sample, nothing is said about a pack."""
SAMPLE_SECONDS = 3.0
"""The limit for measuring the sample: no kernel starts after it, once there are ``LEAST``."""
ALIKE = 0.1
"""Two measurements of a kernel on one machine differ by up to this part, minutes apart. More is another machine."""
_MOST = 0.75
"""The part of the sample that must agree: of eight kernels, other work on the machine may disturb two."""
_FAR = 99.0
"""The deviation of a kernel that has no cost here at all."""

Measure = Callable[[Workload], Cost]


@dataclass(frozen=True, slots=True)
class Verdict:
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


def verdict_on(pairs: Iterable[tuple[Cost, Cost]]) -> Verdict | None:
    """The verdict for pairs of (packed cost, cost here); None: there are too few.

    A doubtful cost says nothing.
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
    return Verdict(middle, deviations[_agreeing(len(ratios)) - 1], len(ratios))


def spread(costs: Mapping[str, Cost], backends: Mapping[str, str], count: int) -> list[str]:
    """``count`` keys, one from each of as many parts of the range of ``costs``, and spread over the ``backends``.

    Of neighbours in the range every other one comes first, so that a part of the list spans the range, too.
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


class PackedCosts:
    """The packs of a database and of this package, as costs of this machine."""

    def __init__(self, database: CostDatabase):
        self._database = database
        self._packs = {pack.name: pack for pack in chain(_of(database), shipped())}
        self._tried: set[tuple[str, str]] = set()
        """Which packs were tried, and for which fingerprint: once is enough where there is no verdict."""
        self._refused: set[str] = set()
        """Keys of the sample that have no cost here; the database forgets those that the load may have caused."""

    def costs(
        self,
        workloads: Sequence[Workload],
        own: Mapping[str, Cost],
        here: Fingerprints,
        measure: Measure | None,
    ) -> dict[str, Cost]:
        """By key, the costs and refusals for those ``workloads`` that have none in ``own``.

        They are packed ones with origin ``pack``, and those that ``measure`` returned for a sample. ``measure`` is None
        where nothing may be measured: a pack without a verdict has no answers then.
        """
        found: dict[str, Cost] = {}
        if not self._packs or all(workload.key in own for workload in workloads):
            return found
        families = {
            backend: of_family(here.cost(backend)) for backend in {w.backend: None for w in workloads}
        }
        fingerprint = here.cost("tvm")
        for name, pack in self._packs.items():
            packed = {w.key: pack.get(w.key, families[w.backend]) for w in workloads}
            offered = {key: cost for key, cost in packed.items() if cost and key not in self._refused}
            verdict = stored_verdict(self._database, name, fingerprint)
            if verdict is None and measure is not None and (name, fingerprint) not in self._tried:
                trial = _Trial(offered, {w.key: w for w in workloads}, own)
                if not offered:
                    self._tried.add((name, fingerprint))
                    LOGGER.info("pack %s has no costs for this machine: %s", name, _why_other(pack, families))
                elif trial.saves_time:
                    self._tried.add((name, fingerprint))
                    found |= trial.measured(measure)
                    self._refused |= {key for key, cost in found.items() if cost.seconds is None}
                    verdict = self._judged(name, fingerprint, trial.verdict())
            if verdict is not None and verdict.why_not is None:
                found = {key: verdict.applied(cost) for key, cost in offered.items()} | found
        return {key: cost for key, cost in found.items() if key not in own}

    def _judged(self, name: str, fingerprint: str, verdict: Verdict | None) -> Verdict | None:
        """Store a verdict, and with it a pack that is used: so the database has all that a locked compile needs."""
        if verdict is None:
            LOGGER.info("pack %s is not used: too few of its kernels were measured without disturbance", name)
            return None
        if verdict.why_not is not None:
            LOGGER.warning("pack %s is not used on this machine: %s", name, verdict.why_not)
        else:
            LOGGER.info("pack %s is used, its costs times %.2f", name, verdict.ratio)
            keep(self._database, self._packs[name])
        self._database.keep_fact(_fact(name), fingerprint, asdict(verdict))
        return verdict


class _Trial:
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
        """Whether there are more costs to gain than are measured for it."""
        return len(self._unknown) > self._more

    def measured(self, measure: Measure) -> dict[str, Cost]:
        """The costs of the sample, by key."""
        found: dict[str, Cost] = {}
        begin = time.monotonic()
        for key in spread(self._unknown, {key: w.backend for key, w in self._workloads.items()}, self._more):
            if time.monotonic() - begin > SAMPLE_SECONDS and len(self._pairs) >= LEAST:
                break
            cost = measure(self._workloads[key])
            if cost.origin == UNKNOWN:  # the budget is spent
                break
            found[key] = cost
            self._pairs.append((self._unknown[key], cost))
        return found

    def verdict(self) -> Verdict | None:
        """The verdict for what is known and what was measured."""
        return verdict_on(self._pairs)


def stored_verdict(database: CostDatabase, name: str, fingerprint: str) -> Verdict | None:
    """The verdict on a pack on the machine whose costs of TVM's kernels have this ``fingerprint``, if there is one."""
    known = database.fact(_fact(name), fingerprint)
    return None if known is None else Verdict(**known)


def _fact(name: str) -> str:
    return f"verdict on pack {name}"


def _agreeing(sample: int) -> int:
    return ceil(_MOST * sample)


def _why_other(pack: Pack, families: Mapping[str, str]) -> str:
    """In what the fingerprints of a pack differ from those of the family here, ``families`` by backend."""
    for there in pack.entries:
        ours = families.get(fields_of(there).get("backend", ""))
        if ours is not None:
            apart = differences(ours, there).items()
            return "; ".join(f"{field} is {one} here, {other} there" for field, (one, other) in apart)
    return "it is about other backends"


def _of(database: CostDatabase) -> list[Pack]:
    try:
        return list(kept(database))
    except DatabaseError as error:
        LOGGER.warning("packs are not used: %s", error)
        return []
