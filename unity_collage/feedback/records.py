"""Races that were run before, in the database of prices: equal programs on an equal machine are not raced again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target
from tvm_ffi import structural_hash

from ..annotations import CANDIDATES, VIEW
from ..cost.fingerprint import backend_version, price_fingerprint
from ..cost.method import Method
from ..database.costs import CostDatabase
from ..database.rows import digest
from ..errors import MissingPrice
from .entrants import Plan
from .settings import Refinement


@dataclass(frozen=True, slots=True)
class Records:
    """The races of one model among the same entrants, under the circumstances in which programs run here now."""

    database: CostDatabase
    fingerprint: str
    name: str
    """Holds the model with its weights, the plan of each entrant, and the settings."""
    locked: bool = False
    """A race that is not known is an error."""

    def find(self) -> Mapping[str, Any] | None:
        """What :meth:`keep` has kept; raises MissingPrice if nothing, and the database is locked."""
        known = self.database.fact(self.name, self.fingerprint)
        if known is None and self.locked:
            raise MissingPrice(f"no race of these programs is in {self.database.name}, and it is locked")
        return known

    def keep(self, value: Mapping[str, Any]) -> None:
        """Keep the outcome of a race: plain data."""
        if not self.database.read_only:
            self.database.keep_fact(self.name, self.fingerprint, value)


def records_of(
    database: CostDatabase,
    priced: IRModule,
    imported: IRModule,
    plans: Mapping[str, Plan],
    settings: Refinement,
    target: Target,
    locked: bool = False,
) -> Records:
    """The records of a race among ``plans``, by name, and stock TVM."""
    race = {
        "model": str(structural_hash(imported)),
        "entrants": {name: described(priced, plan) for name, plan in plans.items()},
        "settings": asdict(settings),
    }
    backends = dict.fromkeys(
        candidate.backend
        for func in priced.functions.values()
        if isinstance(func, relax.Function) and CANDIDATES.on(func)
        for candidate in CANDIDATES.read(func)
    )
    return Records(
        database,
        circumstances(tuple(backends), target),
        f"race {digest(json.dumps(race, sort_keys=True, default=str))}",
        locked,
    )


def circumstances(backends: Sequence[str], target: Target) -> str:
    """Everything besides the programs that can change the outcome of a race, as text."""
    versions = "; ".join(f"{name} {backend_version(name)}" for name in sorted({*backends, "tvm"} - {VIEW}))
    return f"{price_fingerprint('tvm', target, Method())}\nversions: {versions}"


def described(priced: IRModule, plan: Plan) -> dict[str, list[list[Any]]]:
    """What the kernels of ``plan`` are, whatever their candidates' numbers: plain data."""
    found: dict[str, list[list[Any]]] = {}
    for function, ids in plan.items():
        by_id = {candidate.id: candidate for candidate in CANDIDATES.read(priced[function])}
        chosen = (by_id[identity] for identity in ids)
        found[function] = [[c.backend, c.rule, list(c.indexes), list(c.hidden)] for c in chosen]
    return found


def plan_of(priced: IRModule, description: Mapping[str, Sequence[Sequence[Any]]]) -> Plan | None:
    """The inverse of :func:`described`; None if there is no such candidate."""
    plan: Plan = {}
    for function, kernels in description.items():
        known = {(c.backend, c.rule, c.indexes, c.hidden): c.id for c in CANDIDATES.read(priced[function])}
        wanted = [
            (backend, rule, tuple(indexes), tuple(hidden)) for backend, rule, indexes, hidden in kernels
        ]
        if any(kernel not in known for kernel in wanted):
            return None
        plan[function] = tuple(sorted(known[kernel] for kernel in wanted))
    return plan
