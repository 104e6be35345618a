"""Stores comparisons in the database of costs: equal programs on an equal machine are not timed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from tvm.ir import IRModule
from tvm.target import Target
from tvm_ffi import structural_hash

from ..annotations import CANDIDATES, COSTS, EXTERNAL_MODS, SCHEDULES
from ..cost.fingerprint import backend_version, cost_fingerprint, of_several
from ..cost.method import MEDIAN, Method
from ..database.answers import HINT
from ..database.costs import CostDatabase
from ..database.rows import digest
from ..errors import MissingCost
from ..plan.candidate import VIEW
from .candidates import Choice
from .settings import Refinement


@dataclass(frozen=True, slots=True)
class Records:
    """The stored comparison of the same plans for one model, with the fingerprint of programs here."""

    database: CostDatabase
    fingerprint: str
    name: str
    """The name of the fact: a digest of the model, of each plan, and of the settings that change the outcome.

    The weights are part of it: whether two programs agree may depend on them, as where a runtime saturates."""
    latest: str
    """The name of the fact that names the last comparison for this model and these settings, of whichever plans."""
    model: str
    """A digest of the model without the values of its weights, for the program to begin with."""
    costed: IRModule
    locked: bool = False
    """Whether nothing may be measured."""
    is_optional: bool = False
    """Whether a comparison that a locked database lacks is acceptable."""

    def find(self) -> Mapping[str, Any] | None:
        """The stored outcome, or None; raises MissingCost if there is none, and there should be one.

        A locked database may have it for other plans only: a compile that measures asks for fewer costs, and those that
        it adds behind its search change the plans of the next one. The last comparison decides then.
        """
        known = self.database.fact(self.name, self.fingerprint, sure=not self.locked)
        if known is None and self.locked:
            latest = self.database.fact(self.latest, self.fingerprint)
            known = None if latest is None else self.database.fact(latest, self.fingerprint)
        if known is None and self.locked and not self.is_optional:
            raise MissingCost(f"no comparison of these programs is in {self.database.name}, and it is locked")
        return known

    def before(self) -> Choice | None:
        """The choice of the program that won the last comparison for this model, if it can be built."""
        known = self.database.fact(f"{HINT}{self.model}", self.fingerprint)
        return None if known is None else choice_of(self.costed, known)

    def keep(self, value: Mapping[str, Any], is_doubtful: bool = False) -> None:
        """Store the outcome of a comparison, which is plain data: the ``report``, and the winner's ``choice``."""
        if self.database.read_only:
            return
        self.database.keep_fact(self.name, self.fingerprint, value, is_doubtful)
        self.database.keep_fact(self.latest, self.fingerprint, self.name)
        if value["choice"] is not None:
            self.database.keep_fact(f"{HINT}{self.model}", self.fingerprint, value["choice"])


def records_of(
    database: CostDatabase,
    costed: IRModule,
    imported: IRModule,
    plans: Mapping[str, Choice],
    settings: Refinement,
    target: Target,
    locked: bool = False,
    whole_models: Mapping[str, str] | None = None,
) -> Records:
    """The records of a comparison of ``plans`` (by name) and stock TVM, and of ``whole_models``, by name with the
    version of each runtime."""
    model = model_digest(imported, weights=False)
    asked = {
        "model": model_digest(imported),
        "settings": _outcome_settings(settings),
        **({"whole models": dict(whole_models)} if whole_models else {}),
    }
    described_plans = {name: described(costed, plan) for name, plan in plans.items()}
    compared = {**asked, "plans": described_plans, **_variants(costed, plans)}
    backends = {c.backend for candidates in CANDIDATES.by_function(costed).values() for c in candidates}
    return Records(
        database,
        fingerprint_of(tuple(backends), target),
        f"comparison {_digest(compared)}",
        f"{HINT}compared {_digest(asked)}",
        model,
        costed,
        locked,
        settings.is_optional,
    )


def _digest(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True, default=str))


def model_digest(imported: IRModule, *, weights: bool = True) -> str:
    """A digest of an imported module; without ``weights`` equal for all values of its constants."""
    return str(structural_hash(imported.without_attr(EXTERNAL_MODS), skip_tensor_content=not weights))


def _variants(costed: IRModule, plans: Mapping[str, Choice]) -> dict[str, Any]:
    """What makes other programs of the same candidates: tuned schedules, and kernels on fewer threads.

    Neither is in it where there is none, so records from before still hold.
    """
    schedules = (costed.attrs or {}).get(SCHEDULES, {})
    threads = sorted(
        {
            (function, c.backend, c.rule, c.indexes, c.threads)
            for plan in plans.values()
            for function, ids in plan.items()
            for c in CANDIDATES.read(costed[function])
            if c.id in ids and c.threads is not None
        }
    )
    found = {
        "schedules": {str(kernel): digest(str(trace)) for kernel, trace in schedules.items()},
        "threads": threads,
    }
    return {name: value for name, value in found.items() if value}


def _outcome_settings(settings: Refinement) -> dict[str, Any]:
    """The settings that change the outcome.

    The median has no name in it, so records from before other percentiles still hold.
    """
    found = {name: value for name, value in asdict(settings).items() if name != "build_seconds"}
    return found if found.pop("percentile") == MEDIAN else {**found, "percentile": settings.percentile}


def fingerprint_of(backends: Sequence[str], target: Target) -> str:
    """A text of everything except the programs that can change the result of the comparison."""
    versions = {name: backend_version(name) for name in {*backends, "tvm"} - {VIEW}}
    return of_several(cost_fingerprint("tvm", target, Method()), versions)


def described(costed: IRModule, plan: Choice) -> dict[str, list[list[Any]]]:
    """The kernels of ``plan`` as plain data, without the ids of their candidates."""
    found: dict[str, list[list[Any]]] = {}
    for function, ids in plan.items():
        by_id = {candidate.id: candidate for candidate in CANDIDATES.read(costed[function])}
        chosen = (by_id[identity] for identity in ids)
        found[function] = [
            [
                c.backend,
                c.rule,
                list(c.indexes),
                list(c.hidden),
                *([list(map(list, c.options))] if c.options else []),
            ]
            for c in chosen
        ]
    return found


def choice_of(costed: IRModule, description: Mapping[str, Sequence[Sequence[Any]]]) -> Choice | None:
    """The inverse of :func:`described`; None if some candidate does not exist, or if the functions are others."""
    there = CANDIDATES.by_function(costed)
    if not description.keys() <= there.keys() or COSTS.by_function(costed).keys() - description.keys():
        return None
    plan: Choice = {}
    for function, kernels in description.items():
        known = {(c.backend, c.rule, c.indexes, c.hidden, c.options): c.id for c in there[function]}
        wanted = [
            (
                backend,
                rule,
                tuple(indexes),
                tuple(hidden),
                tuple((str(k), str(v)) for k, v in chain(*options)),
            )
            for backend, rule, indexes, hidden, *options in kernels
        ]
        if any(kernel not in known for kernel in wanted):
            return None
        plan[function] = tuple(sorted(known[kernel] for kernel in wanted))
    return plan
