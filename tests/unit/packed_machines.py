"""Simulated machines for tests of packs: kernels with given costs, a pack of them, and a machine that tries it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tvm.target import Target

from unity_collage.cost.fingerprint import of_family
from unity_collage.cost.model import Workload
from unity_collage.database.costs import CostDatabase
from unity_collage.database.packs import CostPack, keep, made
from unity_collage.machine import fingerprint as machines
from unity_collage.measure.client import Answer
from unity_collage.measure.measured import MeasuredCost
from unity_collage.measure.questions import Client, Fingerprints
from unity_collage.measure.refusal import Refusal
from unity_collage.plan.costs import Cost
from unity_collage.testing import graphs

BACKENDS = ("onednn", "tvm")
FUNC = graphs.chain()


def fingerprint(backend: str, machine: str = "the first", **changed: str) -> str:
    fields = {"backend": backend, "version": "1", "threads": "2", "machine": machine, **changed}
    return machines.text_of(fields)


def kernel(number: int) -> Workload:
    return Workload(f"digest{number}", BACKENDS[number % 2], f"kernel {number}", FUNC, 0)


KERNELS = [kernel(number) for number in range(20)]
SECONDS = {workload.key: 1e-6 * (number + 1) for number, workload in enumerate(KERNELS)}


def cost(seconds: float) -> Cost:
    return Cost(seconds, 0.99 * seconds, 1.01 * seconds, 9)


@dataclass
class Machine:
    """Measures the costs of ``SECONDS``, each times a factor, and remembers what it was asked for."""

    factors: Mapping[str, float] = field(default_factory=dict)
    all_times: float = 1.0
    doubtful: int = 0
    """How many of its first answers are doubtful."""
    asked: list[str] = field(default_factory=list)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"reason": "nothing is measured"}

    def compare(
        self, request: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Answer]:
        self.asked += candidates
        return {key: self._answer(key) for key in candidates}

    def _answer(self, key: str) -> Answer:
        factor = self.factors.get(key, 1.0) * self.all_times
        if not factor:
            return Refusal("it cannot be built")
        return replace(cost(SECONDS[key] * factor), is_doubtful=len(self.asked) <= self.doubtful)


@dataclass(frozen=True)
class Typed(MeasuredCost):
    """Costs on a simulated machine."""

    machine: Machine = field(default_factory=Machine)
    changed: Mapping[str, str] = field(default_factory=dict)

    def _client(self) -> Client:
        return self.machine

    def _fingerprints(self) -> Fingerprints:
        return Fingerprints(
            Target("llvm"),
            lambda backend: fingerprint(backend, "the second", **self.changed),
            lambda backend: f"{backend} 1",
        )


def packed_by_the_first(tmp_path: Path) -> CostPack:
    """A pack of all kernels, from the first machine; the last one is refused there."""
    with CostDatabase(tmp_path / "first.sqlite") as first:
        for workload in KERNELS[:-1]:
            put(first, workload, cost(SECONDS[workload.key]))
        put(first, KERNELS[-1], Cost(None, reason="it has no shape"))
        return made(first, families(), {})


def families() -> dict[str, str]:
    return {fingerprint(backend): of_family(fingerprint(backend)) for backend in BACKENDS}


def put(database: CostDatabase, workload: Workload, known: Cost, **others: Any) -> None:
    database.put(workload.key, fingerprint(workload.backend), "", known, backend=workload.backend, **others)


def second(tmp_path: Path, pack: CostPack, machine: Machine | None = None, **options: Any) -> Typed:
    """Another machine of the family, whose database has the pack."""
    database = CostDatabase(tmp_path / "second.sqlite")
    keep(database, pack)
    return Typed(database, machine=machine or Machine(), **options)
