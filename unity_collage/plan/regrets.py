"""From a search and its plan to an explanation: the verdict and the regret of each candidate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tvm import relax
from tvm.tirx import IntImm

from ..graph import DataflowGraph, Node, members
from ..graph.prim_funcs import CALL_TIR
from ..search import Problem, Solution, Through
from ..search.certificate import Certificate
from .candidate import Candidate, DeclinedBinding
from .costs import Costs
from .explanation import (
    DeclinedGroup,
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    Explanation,
    Proof,
    Verdict,
)
from .names import binding_names
from .near_misses import near_misses_of
from .rivals import cheapest_seconds, difference, explained_kernels
from .unrecognised import Unrecognised


def explanation_of(
    graph: DataflowGraph,
    problem: Problem,
    solution: Solution,
    candidates: Sequence[Candidate],
    costs: Costs,
    throughs: Mapping[int, Through],
    withouts: Mapping[int, Through],
    functions: Sequence[str] = (),
    ties: Mapping[int, tuple[tuple[int, ...], ...]] | None = None,
    declined: Sequence[DeclinedBinding] = (),
    unrecognised: Sequence[Unrecognised] = (),
    certificate: Certificate | None = None,
) -> Explanation:
    """Why ``solution`` chose what it chose.

    * ``throughs``, by candidate: the cheapest plans with it, from ``search.best_throughs``.
    * ``withouts``, by chosen candidate: the cheapest plans without it, from ``search.best_withouts``.
    * ``functions``: the names of the chosen kernels' functions, in their order.
    * ``ties``, by chosen candidate: from :func:`unity_collage.search.ties.tied_with`.

    * ``certificate``: of the cheapest plan, with what is proved of it.

    Regrets are over the cost of the cheapest plan before ties were settled.
    """
    numbers = {key: number for number, key in enumerate(costs.by_key)}
    explained_costs = tuple(ExplainedCost.of(key, cost) for key, cost in costs.by_key.items())
    explained = [
        _explained(c, numbers[costs.keys[c.id]], explained_costs, solution, throughs.get(c.id))
        for c in candidates
    ]
    explained = _with_noise(explained, explained_costs)
    kernels = tuple(explained_kernels(problem, solution, explained, withouts, functions, ties or {}))
    runners_up = {kernel.runner_up for kernel in kernels}
    return Explanation(
        proof=proof_of(solution, costs.launch_seconds, certificate),
        bindings=tuple(map(_binding, graph.nodes, binding_names(graph))),
        kernels=kernels,
        candidates=tuple(
            replace(c, verdict=Verdict.RUNNER_UP) if c.id in runners_up else c for c in explained
        ),
        costs=explained_costs,
        declined=tuple(grouped(declined)),
        left_behind=tuple(members(solution.left_behind)),
        near_misses=near_misses_of(graph, unrecognised),
    )


def proof_of(solution: Solution, launch_seconds: float, certificate: Certificate | None) -> Proof:
    """What is proved about the plan as a whole."""
    return Proof(
        solution.seconds,
        solution.lower_bound,
        solution.gap,
        certificate is not None and certificate.proved,
        solution.algorithm,
        solution.visited,
        launch_seconds,
        solution.tie_seconds,
        1.0 if certificate is None else certificate.unproved,
    )


def grouped(declined: Iterable[DeclinedBinding]) -> Iterable[DeclinedGroup]:
    """The refusals of ``declined``; bindings with the same backend, reason and condition are one group."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for one in declined:
        found.setdefault((one.backend, one.reason, one.condition), []).append(one.index)
    for (backend, reason, condition), indexes in found.items():
        yield DeclinedGroup(backend, reason, tuple(indexes), condition)


def _binding(node: Node, name: str) -> ExplainedBinding:
    return ExplainedBinding(
        name, node.label if node.op == CALL_TIR else node.op, _type_text(node.var.ty), node.is_host
    )


def _type_text(ty: object) -> str:
    """``float32 (2, 4)`` for a tensor; other types as they print."""
    if isinstance(ty, relax.TensorType):
        values = ty.shape.values if isinstance(ty.shape, relax.ShapeExpr) else ()
        known = (str(v.value) if isinstance(v, IntImm) else str(v) for v in values)
        return f"{ty.dtype} ({', '.join(known)})" if values else str(ty.dtype)
    return "tuple" if isinstance(ty, relax.TupleType) else type(ty).__name__


def _explained(
    candidate: Candidate,
    number: int,
    costs: Sequence[ExplainedCost],
    solution: Solution,
    through: Through | None,
) -> ExplainedCandidate:
    """A candidate with its verdict; ``number`` is the position of its cost in ``costs``."""
    explained = ExplainedCandidate(
        id=candidate.id,
        backend=candidate.backend,
        rule=candidate.rule,
        label=candidate.title,
        bindings=candidate.indexes,
        cost=number,
        verdict=Verdict.NO_PLAN,
        hidden=candidate.hidden,
    )
    cost = costs[number]
    if any(option.id == candidate.id for option in solution.chosen):
        return replace(explained, verdict=Verdict.CHOSEN, best_through=solution.seconds, regret=0.0)
    if cost.seconds is None:
        return replace(explained, verdict=Verdict.NO_COST if cost.bound is None else Verdict.NOT_MEASURED)
    return explained if through is None else _with_regret(explained, cost.seconds, solution, through)


def _with_regret(
    explained: ExplainedCandidate, seconds: float, solution: Solution, through: Through
) -> ExplainedCandidate:
    """A measured candidate that some valid plan contains, with its regret."""
    regret = difference(through.seconds, cheapest_seconds(solution))
    return replace(
        explained,
        verdict=Verdict.COSTS_MORE,
        best_through=through.seconds,
        regret=regret,
        exact=through.exact,
        saved=regret / seconds if seconds else None,
    )


def _with_noise(
    explained: Sequence[ExplainedCandidate], costs: Sequence[ExplainedCost]
) -> list[ExplainedCandidate]:
    """The candidates, with ``within_noise`` where the intervals of the costs are wider than the regret."""
    doubt = _doubt_by_binding(explained, costs)
    found: list[ExplainedCandidate] = []
    for candidate in explained:
        cost = costs[candidate.cost]
        if candidate.regret is None or candidate.verdict is Verdict.CHOSEN or cost.seconds is None:
            found.append(candidate)
            continue
        displaced = {id_: high for i in candidate.bindings for id_, high in doubt.get(i, {}).items()}
        open_seconds = max(0.0, cost.seconds - cost.low) + sum(displaced.values())
        found.append(replace(candidate, within_noise=candidate.exact and candidate.regret <= open_seconds))
    return found


def _doubt_by_binding(
    explained: Iterable[ExplainedCandidate], costs: Sequence[ExplainedCost]
) -> dict[int, dict[int, float]]:
    """For each binding, by chosen candidate that computes it, how much more that may cost within its interval."""
    doubt: dict[int, dict[int, float]] = {}
    for candidate in explained:
        cost = costs[candidate.cost]
        if candidate.verdict is Verdict.CHOSEN and cost.seconds is not None:
            for index in candidate.bindings:
                doubt.setdefault(index, {})[candidate.id] = max(0.0, cost.high - cost.seconds)
    return doubt
