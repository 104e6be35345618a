"""From a search and its plan to an explanation: verdicts, regrets and runners-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tvm import relax
from tvm.tirx import IntImm

from ..graph import DataflowGraph, Node, index_set, members
from ..index_set import EMPTY, IndexSet
from ..search import Option, Problem, Solution, Through
from .candidate import Candidate, DeclinedBinding
from .costs import Costs
from .explanation import (
    DeclinedGroup,
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    ExplainedKernel,
    Explanation,
    Proof,
    Verdict,
)
from .names import binding_names
from .near_misses import near_misses_of
from .unrecognised import Unrecognised

ROUNDING = 1e-9
"""Two plans whose costs differ by no more than this part are equally cheap: sums in another order differ so much."""


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
) -> Explanation:
    """Why ``solution`` is what it is. ``functions`` are the names of the chosen kernels' functions, in their order.

    ``throughs`` and ``withouts`` are the costs of the cheapest plans with each candidate and without each
    chosen one, as ``search.best_throughs`` and ``search.best_withouts`` find them; ``ties``, by chosen one, those
    that :func:`unity_collage.search.ties.tied_with` finds. Regrets are over the cheapest plan, ties aside.
    """
    numbers = {key: number for number, key in enumerate(costs.by_key)}
    explained = tuple(ExplainedCost.of(key, cost) for key, cost in costs.by_key.items())
    bids = [_bid(c, numbers[costs.keys[c.id]], explained, solution, throughs.get(c.id)) for c in candidates]
    bids = _with_noise(bids, explained, solution)
    kernels = tuple(_kernels(problem, solution, bids, withouts, functions, ties or {}))
    runners_up = {kernel.runner_up for kernel in kernels}
    return Explanation(
        proof=proof_of(solution, costs.launch_seconds),
        bindings=tuple(map(_binding, graph.nodes, binding_names(graph))),
        kernels=kernels,
        candidates=tuple(replace(b, verdict=Verdict.RUNNER_UP) if b.id in runners_up else b for b in bids),
        costs=explained,
        declined=tuple(grouped(declined)),
        left_behind=tuple(members(solution.left_behind)),
        near_misses=near_misses_of(graph, unrecognised),
    )


def proof_of(solution: Solution, launch_seconds: float) -> Proof:
    """What is known of the plan as a whole."""
    return Proof(
        solution.seconds,
        solution.lower_bound,
        solution.gap,
        solution.proved,
        solution.algorithm,
        solution.visited,
        launch_seconds,
        solution.tie_seconds,
    )


def grouped(declined: Iterable[DeclinedBinding]) -> Iterable[DeclinedGroup]:
    """Which backends refused which bindings, by reason."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for one in declined:
        found.setdefault((one.backend, one.reason, one.condition), []).append(one.index)
    for (backend, reason, condition), indexes in found.items():
        yield DeclinedGroup(backend, reason, tuple(indexes), condition)


def _binding(node: Node, name: str) -> ExplainedBinding:
    return ExplainedBinding(name, node.op, type_text(node.var.ty), node.is_host)


def type_text(ty: object) -> str:
    """``float32 (2, 4)`` for a tensor; other types as they print."""
    if isinstance(ty, relax.TensorType):
        values = ty.shape.values if isinstance(ty.shape, relax.ShapeExpr) else ()
        known = (str(v.value) if isinstance(v, IntImm) else str(v) for v in values)
        return f"{ty.dtype} ({', '.join(known)})" if values else str(ty.dtype)
    return "tuple" if isinstance(ty, relax.TupleType) else type(ty).__name__


def _bid(
    candidate: Candidate,
    number: int,
    costs: Sequence[ExplainedCost],
    solution: Solution,
    through: Through | None,
) -> ExplainedCandidate:
    bid = ExplainedCandidate(
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
        return replace(bid, verdict=Verdict.CHOSEN, best_through=solution.seconds, regret=0.0)
    if cost.seconds is None:
        return replace(bid, verdict=Verdict.NO_COST if cost.bound is None else Verdict.NOT_MEASURED)
    return bid if through is None else _judged(bid, cost.seconds, solution, through)


def _judged(
    bid: ExplainedCandidate, seconds: float, solution: Solution, through: Through
) -> ExplainedCandidate:
    """A measured candidate that a plan could contain."""
    regret = _difference(through.seconds, _cheapest(solution))
    return replace(
        bid,
        verdict=Verdict.COSTS_MORE,
        best_through=through.seconds,
        regret=regret,
        exact=through.exact,
        saved=regret / seconds if seconds else None,
    )


def _with_noise(
    bids: Sequence[ExplainedCandidate], costs: Sequence[ExplainedCost], solution: Solution
) -> list[ExplainedCandidate]:
    """Bids whose regret is no more than what the intervals of the costs leave open."""
    doubt = _doubt_by_binding(bids, costs)
    found = []
    for bid in bids:
        cost = costs[bid.cost]
        if bid.regret is None or bid.verdict is Verdict.CHOSEN or cost.seconds is None:
            found.append(bid)
            continue
        displaced = {id_: high for i in bid.bindings for id_, high in doubt.get(i, {}).items()}
        open_seconds = max(0.0, cost.seconds - cost.low) + sum(displaced.values())
        found.append(replace(bid, within_noise=bid.exact and bid.regret <= open_seconds))
    return found


def _doubt_by_binding(
    bids: Iterable[ExplainedCandidate], costs: Sequence[ExplainedCost]
) -> dict[int, dict[int, float]]:
    """For each binding, by chosen bid that computes it, how much more expensive that may really be."""
    doubt: dict[int, dict[int, float]] = {}
    for bid in bids:
        cost = costs[bid.cost]
        if bid.verdict is Verdict.CHOSEN and cost.seconds is not None:
            for index in bid.bindings:
                doubt.setdefault(index, {})[bid.id] = max(0.0, cost.high - cost.seconds)
    return doubt


def _kernels(
    problem: Problem,
    solution: Solution,
    bids: Sequence[ExplainedCandidate],
    withouts: Mapping[int, Through],
    functions: Sequence[str],
    ties: Mapping[int, tuple[tuple[int, ...], ...]],
) -> Iterable[ExplainedKernel]:
    writer = _writers(problem, solution)
    for number, rivals in enumerate(_rivals(solution.chosen, bids)):
        option = solution.chosen[number]
        reads = EMPTY
        for source in members(problem.inputs(option.inside)):
            reads |= writer[source]
        kernel = ExplainedKernel(
            candidate=option.id,
            function=functions[number] if functions else "",
            reads=tuple(members(reads)),
            rivals=tuple(bid.id for bid in rivals),
            ties=ties.get(option.id, ()),
        )
        yield _with_margin(kernel, rivals, _cheapest(solution), withouts.get(option.id))


def _with_margin(
    kernel: ExplainedKernel, rivals: Sequence[ExplainedCandidate], seconds: float, without: Through | None
) -> ExplainedKernel:
    """With what the cheapest plan ``without`` the kernel costs more, and a rival that is in it.

    Some rival is in that plan, and no rival in it has more regret than the plan costs more.
    """
    if without is None:
        return kernel
    margin = _difference(without.seconds, seconds)
    within = [bid for bid in rivals if bid.regret is not None and bid.regret <= margin + ROUNDING * seconds]
    most = max((bid.regret or 0.0 for bid in within), default=0.0)
    first = next((bid.id for bid in within if (bid.regret or 0.0) >= most - ROUNDING * seconds), None)
    return replace(kernel, runner_up=first, margin=margin, exact=without.exact)


def _cheapest(solution: Solution) -> float:
    """What the cheapest plan costs: the one that was chosen, before ties were settled."""
    return solution.seconds - solution.tie_seconds


def _difference(seconds: float, chosen: float) -> float:
    """How much more expensive than the plan chosen, 0 where only the order of summing differs."""
    return 0.0 if abs(seconds - chosen) <= ROUNDING * chosen else seconds - chosen


def _writers(problem: Problem, solution: Solution) -> list[IndexSet]:
    """For each node, the kernels that write its value; for one left behind, those that it looks at."""
    found = [EMPTY] * len(problem)
    for number, option in enumerate(solution.chosen):
        for index in members(problem.outputs(option)):
            found[index] |= 1 << number
    for index in members(solution.left_behind):
        for source in problem.sources[index]:
            found[index] |= found[source]
    return found


def _rivals(chosen: Sequence[Option], bids: Sequence[ExplainedCandidate]) -> list[list[ExplainedCandidate]]:
    """For each chosen kernel, who else could compute some binding of it, the least regret first."""
    owners: dict[int, IndexSet] = {}
    for number, option in enumerate(chosen):
        for index in members(option.inside):
            owners[index] = owners.get(index, EMPTY) | 1 << number
    found: list[list[tuple[tuple[float, bool, int], ExplainedCandidate]]] = [[] for _ in chosen]
    for bid in bids:
        if bid.regret is None or bid.verdict is Verdict.CHOSEN:
            continue
        shared = EMPTY
        for index in bid.bindings:
            shared |= owners.get(index, EMPTY)
        for number in members(shared):
            differs = index_set(bid.bindings) != chosen[number].inside
            found[number].append(((bid.regret, differs, bid.id), bid))
    return [[bid for _, bid in sorted(each, key=lambda item: item[0])] for each in found]
