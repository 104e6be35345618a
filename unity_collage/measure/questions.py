"""The requests to a worker process, and how its replies are stored in the database."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol

import tvm
from tvm.target import Target

from ..cost.fingerprint import of_several
from ..cost.model import Workload
from ..database.costs import CostDatabase, FailureKind, Quarantined
from ..database.rows import with_target
from ..plan.costs import Cost
from .client import Answer
from .refusal import Refusal

LOGGER = logging.getLogger(__name__)

_SECONDS_TOGETHER = 10.0
"""The limit for timing kernels together: no round starts after it."""


_OF_THE_MACHINE = (FailureKind.HANG, FailureKind.OUT_OF_MEMORY)
"""Failures that the machine may have caused; an entry of quarantine holds for all machines with the database."""


class Client(Protocol):
    """Measures kernels: in a worker process here, or on servers."""

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The one reply to ``request``; where there is none, a reply with a ``reason``.

        If that has a cause that may pass, its ``lasting`` is false.
        """
        ...

    def compare(
        self, request: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Answer]:
        """A cost or a refusal for each of ``candidates``, which are timed together."""
        ...


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """The target, and everything else besides the kernel that can change its cost."""

    target: Target
    cost: Callable[[str], str]
    """Returns the fingerprint of a cost, by backend."""
    version: Callable[[str], str]
    """Returns the version of a backend by name."""

    def quarantine(self, backend: str) -> str:
        """What a quarantine entry holds for: one version of the backend, and one target.

        A kernel for another processor crashes here, and is a good one there.
        """
        return with_target(self.version(backend), str(self.target))

    def of_several(self, backends: Iterable[str]) -> str:
        """The fingerprint of what is measured of kernels of TVM and these backends together."""
        return of_several(self.cost("tvm"), {name: self.version(name) for name in {"tvm", *backends}})


def grouped_by_computation(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """The workloads in groups that compute the same, in the order in which they are asked for.

    Each group is timed in turns.
    """
    groups: dict[tuple[str, int], list[Workload]] = {}
    for workload in workloads:
        groups.setdefault((computed(workload), workload.evict_bytes), []).append(workload)
    return list(groups.values())


def computed(workload: Workload) -> str:
    """A digest of what a kernel computes."""
    return workload.computation or workload.digest


def named(asked: Sequence[Workload]) -> str:
    """Kernels for one computation, or the first of several, in a line."""
    first = [workload for workload in asked if computed(workload) == computed(asked[0])]
    more = f" and {len(asked) - len(first)} more" if len(first) < len(asked) else ""
    return f"{', '.join(workload.backend for workload in first)} {first[0].label}{more}"


def known_costs(database: CostDatabase, workloads: Sequence[Workload], here: Fingerprints) -> dict[str, Cost]:
    """By key, the costs and refusals in the database; a kernel in quarantine has its reason there.

    One that has a cost here hung, or ran out of memory, on another machine or under load: the cost counts.
    """
    known: dict[str, Cost] = {}
    for backend in dict.fromkeys(workload.backend for workload in workloads):
        keys = [workload.key for workload in workloads if workload.backend == backend]
        known |= database.get(keys, here.cost(backend))
        for key, entry in database.quarantined(keys, here.quarantine(backend)).items():
            if key in known and entry.kind in _OF_THE_MACHINE:
                continue
            text = Refusal(entry.reason, entry.kind).text
            known[key] = Cost(None, origin="database", reason=text)
    return known


def measured_costs(
    client: Client,
    database: CostDatabase,
    group: Sequence[Workload],
    here: Fingerprints,
    known: Mapping[str, Cost] | None = None,
    seconds: float = math.inf,
) -> dict[str, Cost]:
    """The costs of kernels, by key; costs and lasting refusals are stored in ``database``.

    After ``seconds`` no other kernel is begun; those that were not begun are missing in the result.

    All have the same ``evict_bytes``. Those in ``known`` compute the same as the others, take part in the turns and
    stay as they are: the others are scaled to their level. If a compile changed costs that it has read, the next
    compile would not find the same plan.
    """
    known = known or {}
    texts = {workload.key: tvm.ir.save_json(workload.func) for workload in group}
    answers = client.compare(
        {
            "ask": "cost",
            "target": str(here.target),
            "evict_bytes": group[0].evict_bytes,
            "seconds": seconds,
        },
        {w.key: {"backend": w.backend, "function": texts[w.key], "digest": computed(w)} for w in group},
    )
    level = _level(answers, known)
    costs = dict(known)
    for workload in group:
        if workload.key in known:
            continue
        answer = _scaled(answers[workload.key], level)
        if isinstance(answer, Refusal) and answer.is_late:
            continue
        costs[workload.key] = Cost(None, reason=answer.text) if isinstance(answer, Refusal) else answer
        if isinstance(answer, Refusal):
            LOGGER.info("%s %s has no cost: %s", workload.backend, workload.label, answer.text)
        if isinstance(answer, Refusal) and answer.kind is not None:
            database.quarantine(_entry(workload, answer, here.quarantine(workload.backend)))
        elif isinstance(answer, Cost) or answer.lasting:
            database.put(
                workload.key, here.cost(workload.backend), workload.label, costs[workload.key],
                backend=workload.backend, workload=texts[workload.key],
            )  # fmt: skip
    return costs


def _level(answers: Mapping[str, Answer], known: Mapping[str, Cost]) -> float:
    """The known costs over the times of the same kernels now."""
    ratios = [
        cost.seconds / answer.seconds
        for key, cost in known.items()
        if isinstance(answer := answers.get(key), Cost) and cost.seconds and answer.seconds
    ]
    return median(ratios) if ratios else 1.0


def _scaled(answer: Answer, level: float) -> Answer:
    if isinstance(answer, Refusal) or answer.seconds is None:
        return answer
    return replace(answer, seconds=answer.seconds * level, low=answer.low * level, high=answer.high * level)


def costs_in_turns(
    client: Client, group: Sequence[Workload], here: Fingerprints, apart: bool, seconds: float = math.inf
) -> dict[str, Cost]:
    """The costs of kernels that have costs already, by key, all timed in turns; they may compute different things.

    ``apart``: evict the caches before each run, so that kernels do not evict each other's weights. After ``seconds`` of
    timing no more rounds start.
    """
    answers = client.compare(
        {
            "ask": "together",
            "target": str(here.target),
            "evict_bytes": group[0].evict_bytes,
            "apart": apart,
            "seconds": min(seconds, _SECONDS_TOGETHER),
        },
        {w.key: {"backend": w.backend, "function": tvm.ir.save_json(w.func)} for w in group},
    )
    return {key: answer for key, answer in answers.items() if isinstance(answer, Cost)}


def _entry(workload: Workload, refusal: Refusal, version: str) -> Quarantined:
    assert refusal.kind is not None
    return Quarantined(workload.key, version, workload.label, workload.backend, refusal.kind, refusal.reason)
