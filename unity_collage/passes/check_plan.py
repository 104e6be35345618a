"""Whether the plan of a partitioned function is what it claims to be: for whoever doubts the search."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ..annotations import CANDIDATES, COSTS, PLAN
from ..graph import DataflowGraph
from ..search.certificate import Certificate, why_not
from .problem import problem_of


def why_not_plan(priced: relax.Function, partitioned: relax.Function, redundant: bool = True) -> str | None:
    """What is wrong with ``collage.plan`` of ``partitioned``, or None.

    ``priced`` is the same function as EstimateCosts has left it: its candidates and costs pose the problem, the
    certificate in the plan is the answer, and the checker shares no code with the searches. ``redundant`` as it was
    for SearchPartition.
    """
    problem = problem_of(DataflowGraph(priced), CANDIDATES.read(priced), COSTS.read(priced), redundant)
    claim: dict[str, Any] = PLAN.read(partitioned)["certificate"]
    return why_not(
        problem,
        Certificate(
            chosen=tuple(int(number) for number in claim["chosen"]),
            left_behind=tuple(int(number) for number in claim["left_behind"]),
            seconds=float(claim["seconds"]),
            lower_bound=float(claim["lower_bound"]),
            gap=float(claim["gap"]),
            proved=bool(claim["proved"]),
            algorithm=str(claim["algorithm"]),
            potentials=tuple(float(value) for value in claim["potentials"]),
        ),
    )
