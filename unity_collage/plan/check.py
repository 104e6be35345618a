"""Whether the plan of a partitioned function is what it claims to be: for whoever doubts the search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import relax

from ..annotations import CANDIDATES, COSTS, PLAN
from ..graph import DataflowGraph
from ..search.certificate import Certificate, TieClaim, why_not, why_not_ties
from .problem import problem_of


def why_not_plan(priced: relax.Function, partitioned: relax.Function, redundant: bool = True) -> str | None:
    """What is wrong with ``collage.plan`` of ``partitioned``, or None.

    ``priced`` is the same function as EstimateCosts has left it: its candidates and costs pose the problem, the
    certificate in the plan is the answer, and the checker shares no code with the searches. ``redundant`` as it was
    for SearchPartition. Where a policy has settled ties, it is checked too that the plan differs by ties alone.
    """
    problem = problem_of(DataflowGraph(priced), CANDIDATES.read(priced), COSTS.read(priced), redundant)
    plan = PLAN.read(partitioned)
    certificate = _certificate(plan["certificate"])
    reason = why_not(problem, certificate)
    if reason is not None or "tie_policy" not in plan:
        return reason
    return why_not_ties(problem, certificate, _tie_claim(plan["tie_policy"]))


def _certificate(data: dict[str, Any]) -> Certificate:
    return Certificate(
        chosen=_ids(data["chosen"]),
        left_behind=_ids(data["left_behind"]),
        seconds=float(data["seconds"]),
        lower_bound=float(data["lower_bound"]),
        gap=float(data["gap"]),
        proved=bool(data["proved"]),
        algorithm=str(data["algorithm"]),
        potentials=tuple(float(value) for value in data["potentials"]),
    )


def _tie_claim(data: dict[str, Any]) -> TieClaim:
    swaps = tuple((int(swap["taken"]), _ids(swap["instead"])) for swap in data["swaps"])
    return TieClaim(_ids(data["chosen"]), _ids(data["left_behind"]), float(data["seconds"]), swaps)


def _ids(data: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(number) for number in data)
