"""The plan of a function as data: what was chosen, at what price, and why the others were not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..annotations import DECLINED, Candidate, Costs
from ..graph import DataflowGraph, index_set, members
from ..graph.outline import Group
from ..index_set import IndexSet
from ..search import Solution


def plan_of(
    graph: DataflowGraph,
    solution: Solution,
    candidates: dict[int, Candidate],
    costs: Costs,
    groups: list[Group],
) -> dict[str, Any]:
    """The plan as data: what was chosen at what price, and who else bid for exactly the same operators."""
    rivals: dict[IndexSet, list[Candidate]] = {}
    for candidate in candidates.values():
        rivals.setdefault(index_set(candidate.indexes), []).append(candidate)
    kernels = []
    for option, group in zip(solution.chosen, groups, strict=True):
        candidate = candidates[option.id]
        kernels.append(
            {
                "backend": candidate.backend,
                "label": candidate.label,
                "function": group.callee.name_hint,
                "bindings": [graph.nodes[i].var.name for i in candidate.indexes],
                "seconds": option.seconds,
                "others": [_bid(c, costs) for c in rivals[option.inside] if c.id != candidate.id],
            }
        )
    return {
        "seconds": solution.seconds,
        "lower_bound": solution.lower_bound,
        "launch_seconds": costs.launch_seconds,
        "visited_states": solution.visited,
        "kernels": kernels,
        "left_behind": [graph.nodes[i].var.name for i in members(solution.left_behind)],
        "unpriced": _unpriced(candidates.values(), costs),
        "declined": _declined(graph),
    }


def _unpriced(candidates: Iterable[Candidate], costs: Costs) -> list[dict[str, str]]:
    """Every distinct kernel that has no price, with its reason."""
    found: dict[str, dict[str, str]] = {}
    for candidate in candidates:
        key = costs.keys[candidate.id]
        if costs.prices[key].seconds is None:
            reason = costs.prices[key].reason
            found[key] = {"backend": candidate.backend, "label": candidate.label, "reason": reason}
    return list(found.values())


def _declined(graph: DataflowGraph) -> list[dict[str, Any]]:
    """Who refused which bindings, by reason."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for refusal in DECLINED.read(graph.func) if DECLINED.on(graph.func) else ():
        name = graph.nodes[refusal.index].var.name
        grouped.setdefault((refusal.backend, refusal.reason), []).append(name)
    return [{"backend": b, "reason": r, "bindings": names} for (b, r), names in grouped.items()]


def _bid(candidate: Candidate, costs: Costs) -> dict[str, Any]:
    cost = costs.prices[costs.keys[candidate.id]]
    price = {"reason": cost.reason} if cost.seconds is None else {"seconds": cost.seconds}
    return {"backend": candidate.backend, **price}
