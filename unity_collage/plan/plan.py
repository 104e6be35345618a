"""The plan of a function as data: what was chosen, at what price, and why the others were not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..annotations import IN_PROGRAM, VIEW, Candidate, Cost, Costs
from ..graph import DataflowGraph, index_set, members
from ..index_set import IndexSet
from ..lowering.outline import Group
from ..search import Solution
from ..search.certificate import Certificate
from .explanation import Explanation, Kernel
from .names import binding_names
from .regrets import declined_of

EMPTY_PLAN: dict[str, Any] = {
    "seconds": 0.0,
    "lower_bound": 0.0,
    "kernels": [],
    "left_behind": [],
    "unpriced": [],
    "declined": [],
    "remarks": ["TVM compiles it as it is"],
}
"""Of a function without candidates."""


def plan_of(
    graph: DataflowGraph,
    solution: Solution,
    candidates: dict[int, Candidate],
    costs: Costs,
    groups: list[Group],
    explanation: Explanation | None = None,
    certificate: Certificate | None = None,
    ties: Mapping[int, Sequence[Sequence[int]]] | None = None,
) -> dict[str, Any]:
    """The plan as data: what was chosen at what price, and who else bid for exactly the same operators.

    With an ``explanation`` every kernel also has its runner-up: the candidate in the cheapest plan without the
    kernel, and by how much that plan is dearer. The ``certificate`` is what
    :func:`unity_collage.search.certificate.why_not` checks: it is about the cheapest plan, ``tie_policy`` about what
    the policy has swapped in it. ``ties`` are the candidates that tie with each chosen one, by id, as
    :func:`unity_collage.search.ties.tied_with` finds them.
    """
    names = binding_names(graph)
    rivals: dict[IndexSet, list[Candidate]] = {}
    for candidate in candidates.values():
        rivals.setdefault(index_set(candidate.indexes), []).append(candidate)
    kernels: list[dict[str, Any]] = []
    for option, group in zip(solution.chosen, groups, strict=True):
        candidate = candidates[option.id]
        kernel = _kernel(candidate, group, costs, names)
        kernel["others"] = [_bid(c, costs) for c in rivals[option.inside] if c.id != candidate.id]
        if tied := (ties or {}).get(candidate.id):
            kernel["ties"] = [[_tied(candidates[i], costs, names) for i in ids] for ids in tied]
        kernels.append(kernel)
    for kernel, runner_up in zip(kernels, _runners_up(explanation), strict=False):
        if runner_up is not None:
            kernel["runner_up"] = runner_up
    unpriced = _unpriced(candidates.values(), costs)
    views = {
        index for option in solution.chosen if option.backend == VIEW for index in members(option.inside)
    }
    return {
        **_proof(solution, costs),
        "kernels": [kernel for kernel in kernels if kernel["backend"] != VIEW],
        "left_behind": [names[i] for i in sorted({*members(solution.left_behind), *views})],
        "unpriced": unpriced,
        "declined": _declined(graph, names),
        "remarks": list(_remarks(solution, unpriced, _corrected(candidates.values(), costs))),
        **({} if certificate is None else {"certificate": _plain(certificate)}),
        **({"tie_policy": _policy(solution)} if solution.swaps else {}),
    }


def _plain(certificate: Certificate) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in asdict(certificate).items()
    }


def _proof(solution: Solution, costs: Costs) -> dict[str, Any]:
    """What is known of the plan as a whole."""
    return {
        "seconds": solution.seconds,
        "lower_bound": solution.lower_bound,
        "gap": solution.gap,
        "proved": solution.proved,
        "algorithm": solution.algorithm,
        "visited_states": solution.visited,
        "launch_seconds": costs.launch_seconds,
    }


def _kernel(candidate: Candidate, group: Group, costs: Costs, names: Sequence[str]) -> dict[str, Any]:
    """What was chosen, and its price."""
    cost = costs.prices[costs.keys[candidate.id]]
    return {
        "candidate": candidate.id,
        "backend": candidate.backend,
        "label": candidate.label,
        "function": group.name,
        **({} if candidate.threads is None else {"threads": candidate.threads}),
        "bindings": [names[i] for i in candidate.indexes],
        "seconds": cost.seconds,
        **_interval(cost),
    }


def _tied(candidate: Candidate, costs: Costs, names: Sequence[str]) -> dict[str, Any]:
    """A candidate that is as cheap as a kernel of the plan as far as anybody knows."""
    cost = costs.prices[costs.keys[candidate.id]]
    return {
        "backend": candidate.backend,
        "label": candidate.label,
        "bindings": [names[i] for i in candidate.indexes],
        "seconds": cost.seconds,
        **_interval(cost),
    }


def _interval(cost: Cost) -> dict[str, float]:
    """The interval of a price that was measured."""
    known = cost.seconds is not None and cost.low <= cost.seconds <= cost.high
    return {"low": cost.low, "high": cost.high} if known else {}


def _policy(solution: Solution) -> dict[str, Any]:
    """What the policy has swapped; what :func:`unity_collage.search.certificate.why_not_ties` checks."""
    return {
        "chosen": [option.id for option in solution.chosen],
        "left_behind": list(members(solution.left_behind)),
        "seconds": solution.seconds,
        "more_than_cheapest": solution.tie_seconds,
        "swaps": [{"taken": swap.taken, "instead": list(swap.instead)} for swap in solution.swaps],
    }


def _runners_up(explanation: Explanation | None) -> Iterator[dict[str, Any] | None]:
    """For each kernel, who would be there in its place, or None."""
    if explanation is None:
        return
    for kernel in explanation.kernels:
        yield None if kernel.runner_up is None else _runner_up(explanation, kernel, kernel.runner_up)


def _runner_up(explanation: Explanation, kernel: Kernel, id_: int) -> dict[str, Any]:
    bid = explanation.by_id[id_]
    return {
        "backend": bid.backend,
        "label": bid.label,
        "bindings": [explanation.bindings[i].name for i in bid.bindings],
        "seconds": explanation.price(bid).seconds,
        "regret": kernel.margin,
        "exact": kernel.exact,
    }


def _remarks(solution: Solution, unpriced: list[dict[str, str]], corrected: Sequence[str]) -> Iterator[str]:
    """What a reader should know besides the figures."""
    if not solution.proved:
        yield f"not proved: a plan that is up to {solution.gap:.2%} cheaper may exist"
    if solution.swaps:
        part = solution.tie_seconds / solution.seconds if solution.seconds else 0.0
        yield f"cost within {part:.2%} of the cheapest plan by tie policy: {len(solution.swaps)} kernels are ties"
    if unpriced:
        yield f"{len(unpriced)} distinct candidates have no price"
    if corrected:
        yield f"the price is what the kernel took in the running program: {', '.join(corrected)}"


def _corrected(candidates: Iterable[Candidate], costs: Costs) -> list[str]:
    """Every distinct kernel whose price did not hold in the running program."""
    found = {
        key: f"{candidate.backend} {candidate.label} {1e6 * (costs.prices[key].seconds or 0.0):.3g} us"
        for candidate in candidates
        if costs.prices[key := costs.keys[candidate.id]].origin == IN_PROGRAM
    }
    return list(found.values())


def _unpriced(candidates: Iterable[Candidate], costs: Costs) -> list[dict[str, str]]:
    """Every distinct kernel that has no price, with its reason."""
    found: dict[str, dict[str, str]] = {}
    for candidate in candidates:
        key = costs.keys[candidate.id]
        if costs.prices[key].seconds is None:
            reason = costs.prices[key].reason
            found[key] = {"backend": candidate.backend, "label": candidate.label, "reason": reason}
    return list(found.values())


def _declined(graph: DataflowGraph, names: list[str]) -> list[dict[str, Any]]:
    """Who refused which bindings, by reason."""
    return [
        {"backend": d.backend, "reason": d.reason, "bindings": [names[i] for i in d.bindings]}
        for d in declined_of(graph)
    ]


def _bid(candidate: Candidate, costs: Costs) -> dict[str, Any]:
    cost = costs.prices[costs.keys[candidate.id]]
    price = {"reason": cost.reason} if cost.seconds is None else {"seconds": cost.seconds}
    return {"backend": candidate.backend, **price}
