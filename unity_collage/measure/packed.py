"""Packed costs: costs of another machine with a processor of the same family, used if a sample measured here agrees.

A pack may come from a machine that has another clock, slower memory or noisy neighbours. So the first compile on a
machine measures a few of the kernels that it needs. If the machine is faster or slower as a whole, the ratios are
equal, and the packed costs are scaled by them. If the ratios differ between kernels, the pack is from another kind of
machine, and none of it is used. Since the machine may have been busy, the next compile tries a refused pack again; a
second refusal is final.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain

from ..cost.fingerprint import of_family
from ..cost.model import Workload
from ..database.costs import CostDatabase
from ..database.packs import CostPack, keep, kept, shipped
from ..errors import DatabaseError
from ..machine import peaks
from ..machine.fingerprint import differences, fields_of
from ..plan.costs import Cost
from .questions import Fingerprints
from .verdict import Measure, PackTrial, PackVerdict

LOGGER = logging.getLogger(__name__)


class PackedCosts:
    """The packs of a database and of this package, as costs of this machine."""

    def __init__(self, database: CostDatabase):
        self._database = database
        self._packs = {pack.name: pack for pack in chain(_of(database), shipped())}
        self._tried: set[tuple[str, str]] = set()
        """Which packs were tried, and for which fingerprint: once is enough in a session."""
        self._refused: set[str] = set()
        """Keys of the sample without a cost here; the database deletes refusals that the load may have caused."""
        self._told: set[str] = set()

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
        if not self._packs or all(workload.key in own for workload in workloads):
            return {}
        backends = dict.fromkeys(workload.backend for workload in workloads)
        families = {backend: of_family(here.cost(backend)) for backend in backends}
        fingerprint = here.cost("tvm")
        measured: dict[str, Cost] = {}
        found: dict[str, Cost] = {}
        for name, pack in self._packs.items():
            packed = {w.key: pack.get(w.key, families[w.backend]) for w in workloads}
            offered = {key: cost for key, cost in packed.items() if cost and key not in self._refused}
            if measure is not None and offered and not self._is_settled(name, fingerprint):
                trial = PackTrial(offered, {w.key: w for w in workloads}, {**measured, **own})
                if trial.saves_time:
                    measured |= trial.measured(measure)
                    self._refused |= {key for key, cost in measured.items() if cost.seconds is None}
                    self._judge(name, fingerprint, trial.verdict())
            elif not any(family in pack.entries for family in families.values()):
                self._tell(name, f"pack {name} has no costs for this machine: {_why_other(pack, families)}")
            verdict = stored_verdict(self._database, name, fingerprint)
            if verdict is not None and verdict.why_not is None:
                found = {key: verdict.applied(cost) for key, cost in offered.items()} | found
        return {key: cost for key, cost in (found | measured).items() if key not in own}

    def _is_settled(self, name: str, fingerprint: str) -> bool:
        """Whether a pack need not be tried: it was in this session, was accepted before, or was refused twice."""
        if (name, fingerprint) in self._tried:
            return True
        return self._database.fact(_fact(name), fingerprint, sure=True) is not None

    def _judge(self, name: str, fingerprint: str, verdict: PackVerdict | None) -> None:
        """Store a verdict, and with it a pack that is used: a locked compile then finds all costs in the database."""
        self._tried.add((name, fingerprint))
        if verdict is None:
            LOGGER.info("pack %s is not used: too few of its kernels were measured without disturbance", name)
            return
        first = stored_verdict(self._database, name, fingerprint) is None
        if verdict.why_not is not None:
            LOGGER.warning("pack %s is not used on this machine: %s", name, verdict.why_not)
        else:
            LOGGER.info("pack %s is used, its costs times %.2f", name, verdict.ratio)
            keep(self._database, self._packs[name])
            peaks.take(self._database, self._packs[name].peaks, verdict.ratio)
        is_doubtful = first and verdict.why_not is not None
        self._database.keep_fact(_fact(name), fingerprint, asdict(verdict), is_doubtful)

    def _tell(self, name: str, text: str) -> None:
        """Log a line about a pack, once."""
        if name not in self._told:
            self._told.add(name)
            LOGGER.info("%s", text)


def stored_verdict(database: CostDatabase, name: str, fingerprint: str) -> PackVerdict | None:
    """The verdict on a pack for the ``fingerprint`` that costs of TVM's kernels have on this machine, if there is
    one.
    """
    known = database.fact(_fact(name), fingerprint)
    return None if known is None else PackVerdict(**known)


def _fact(name: str) -> str:
    return f"verdict on pack {name}"


def _why_other(pack: CostPack, families: Mapping[str, str]) -> str:
    """How the fingerprints of a pack differ from those of this machine's family, ``families`` by backend."""
    for there in pack.entries:
        ours = families.get(fields_of(there).get("backend", ""))
        if ours is not None:
            apart = differences(ours, there).items()
            return "; ".join(f"{field} is {one} here, {other} there" for field, (one, other) in apart)
    return "it is about other backends"


def _of(database: CostDatabase) -> list[CostPack]:
    try:
        return list(kept(database))
    except DatabaseError as error:
        LOGGER.warning("packs are not used: %s", error)
        return []
