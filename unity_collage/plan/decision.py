"""From a solution of the search to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..graph import DataflowGraph, index_set, members
from ..graph.variants import sizes_of
from ..graph.work import border_bytes, direct_flops
from ..index_set import IndexSet
from ..search import Problem, Solution
from ..search.certificate import Certificate
from ..search.tie_claim import TieClaim
from ..search.validity import seconds_of_only
from .candidate import VIEW, Candidate, DeclinedBinding
from .costs import EXPECTED, IN_PROGRAM, PACKED, UNKNOWN, Costs
from .explanation import ExplainedKernel, Explanation
from .instance import packed
from .names import binding_names
from .plan import (
    DeclinedBindings,
    KernelWork,
    Plan,
    PlannedKernel,
    Rival,
    RunnerUp,
    Tie,
    WithoutCost,
    hidden_by_limits,
)
from .ranges import PlanAtSample
from .regrets import grouped
from .weighed import problem_at

_CLOSED = 1e-9
"""A gap of at most this part counts as none: no plan is cheaper."""

Ties = Mapping[int, Sequence[Sequence[int]]]
"""The candidates that tie with each chosen one, by id, as :func:`unity_collage.search.ties.tied_with` finds them."""


def plan_of(
    graph: DataflowGraph,
    solution: Solution,
    candidates: Mapping[int, Candidate],
    costs: Costs,
    functions: Sequence[str],
    *,
    declined: Iterable[DeclinedBinding] = (),
    explanation: Explanation | None = None,
    certificate: Certificate | None = None,
    problem: Problem | None = None,
    ties: Ties | None = None,
    doubt: float = 0.0,
) -> Plan:
    """The plan of ``solution``; ``functions`` are the names of its kernels' functions, in their order.

    With an ``explanation`` every kernel has its runner-up. The ``certificate`` is about the cheapest plan for
    ``problem``; the plan's ``tie_policy`` says how the policy for ties changed it.
    """
    names = binding_names(graph)
    kernels = _kernels(solution, candidates, costs, functions, names, ties or {})
    kernels = [replace(kernel, work=_work(graph, candidates[kernel.candidate])) for kernel in kernels]
    if explanation is not None:
        kernels = [_with_runner_up(kernel, explanation) for kernel in kernels]
    without_cost = tuple(_without_cost(candidates.values(), costs))
    corrected = _corrected(candidates.values(), costs)
    from_packs = sum(costs.of(option.id).origin == PACKED for option in solution.chosen)
    expected = sum(costs.of(option.id).origin == EXPECTED for option in solution.chosen)
    refused = _declined(declined, names)
    return Plan(
        kernels=tuple(kernel for kernel in kernels if kernel.backend != VIEW),
        seconds=solution.seconds,
        lower_bound=solution.lower_bound,
        gap=solution.gap,
        proved=certificate is not None and certificate.proved,
        algorithm=solution.algorithm,
        visited_states=solution.visited,
        launch_seconds=costs.launch_seconds,
        launches=_launches(kernels, costs),
        sizes=sizes_of(graph.func),
        at_samples=() if problem is None else tuple(_at_samples(graph, costs, problem, solution)),
        left_behind=_left_behind(solution, names),
        without_cost=without_cost,
        declined=refused,
        remarks=(
            *_remarks(solution, len(without_cost), corrected, from_packs, expected),
            *_what_is_left_out(graph, solution),
            *_what_is_proved(certificate, problem, refused),
            *_what_is_guessed(certificate, costs),
            *costs.skipped,
        ),
        certificate=certificate,
        problem="" if problem is None else packed(problem),
        tie_policy=_tie_claim(solution) if solution.swaps else None,
        more_than_cheapest=solution.tie_seconds if solution.swaps else 0.0,
        doubt=doubt,
        expected=expected,
    )


def _launches(kernels: Sequence[PlannedKernel], costs: Costs) -> dict[str, float]:
    """The launches of these kernels, by backend, that differ from those of the others."""
    backends = sorted({kernel.backend for kernel in kernels} - {VIEW})
    found = {backend: costs.launches.get(backend, costs.launch_seconds) for backend in backends}
    return {backend: seconds for backend, seconds in found.items() if seconds != costs.launch_seconds}


def _at_samples(
    graph: DataflowGraph, costs: Costs, problem: Problem, solution: Solution
) -> Iterator[PlanAtSample]:
    """What the plan costs at each sample of ``costs``, with the problem there."""
    ids = [option.id for option in solution.chosen]
    for sample in costs.samples:
        there = problem_at(graph, costs, problem, sample)
        by_id = {option.id: option for option in there.options}
        seconds = seconds_of_only(there, [by_id[identity] for identity in ids])
        yield PlanAtSample(sample.sizes, sample.weight, seconds, packed(there))


def _declined(declined: Iterable[DeclinedBinding], names: Sequence[str]) -> tuple[DeclinedBindings, ...]:
    return tuple(
        DeclinedBindings(
            group.backend, group.reason, tuple(names[i] for i in group.bindings), group.condition
        )
        for group in grouped(declined)
    )


def _what_is_proved(
    certificate: Certificate | None, problem: Problem | None, declined: Sequence[DeclinedBindings]
) -> Iterator[str]:
    """Remarks about what the certificate shows, and among which candidates."""
    if certificate is None or problem is None:
        return
    if not certificate.proved and certificate.gap <= _CLOSED:
        yield (
            f"searched, not proved: no plan is cheaper by the bound of the {certificate.algorithm} search; "
            f"it is proved that none is by more than {certificate.unproved:.2%}"
        )
    for hidden in hidden_by_limits(declined):
        word = "optimal" if certificate.proved else "searched"
        yield f"{word} among {len(problem.options)} candidates: {hidden}"


def _what_is_guessed(certificate: Certificate | None, costs: Costs) -> Iterator[str]:
    """Remarks where guessed costs, or bounds that are too high, may be why a plan is not proved."""
    if certificate is None or certificate.proved:
        return
    if costs.failed:
        yield (
            f"{len(costs.failed)} distinct kernels cost less than their lower bounds: "
            "what is proved counts kernels that were not measured as free"
        )
    if guessed := sum(cost.bound_of_guess is not None for cost in costs.by_key.values()):
        yield (
            f"{guessed} distinct kernels have expected costs and were not measured: "
            "what is proved counts them with their lower bounds"
        )


def _left_behind(solution: Solution, names: Sequence[str]) -> tuple[str, ...]:
    """The names of the bindings that are in no kernel, views among them."""
    found = set(members(solution.left_behind))
    for option in solution.chosen:
        if option.backend == VIEW:
            found.update(members(option.inside))
    return tuple(names[index] for index in sorted(found))


def _kernels(
    solution: Solution,
    candidates: Mapping[int, Candidate],
    costs: Costs,
    functions: Sequence[str],
    names: Sequence[str],
    ties: Ties,
) -> list[PlannedKernel]:
    rivals: dict[IndexSet, list[Candidate]] = {}
    for candidate in candidates.values():
        rivals.setdefault(index_set(candidate.indexes), []).append(candidate)
    kernels: list[PlannedKernel] = []
    for option, function in zip(solution.chosen, functions, strict=True):
        candidate, cost = candidates[option.id], costs.of(option.id)
        kernels.append(
            PlannedKernel(
                candidate=candidate.id,
                backend=candidate.backend,
                label=candidate.label,
                function=function,
                bindings=tuple(names[i] for i in candidate.indexes),
                seconds=cost.seconds or 0.0,
                interval=cost.interval,
                threads=candidate.threads,
                device=candidate.device,
                others=tuple(_rival(c, costs) for c in rivals[option.inside] if c.id != candidate.id),
                ties=tuple(
                    tuple(_tie(candidates[i], costs, names) for i in ids) for ids in ties.get(option.id, ())
                ),
            )
        )
    return kernels


def _work(graph: DataflowGraph, candidate: Candidate) -> KernelWork | None:
    sub = candidate.sub_graph(graph)
    (flops, dtype), nbytes = direct_flops(sub), border_bytes(sub)
    return None if flops is None or nbytes is None else KernelWork(flops, nbytes, dtype)


def _rival(candidate: Candidate, costs: Costs) -> Rival:
    cost = costs.of(candidate.id)
    return Rival(candidate.backend, cost.seconds, cost.reason if cost.seconds is None else "")


def _tie(candidate: Candidate, costs: Costs, names: Sequence[str]) -> Tie:
    cost = costs.of(candidate.id)
    bindings = tuple(names[i] for i in candidate.indexes)
    return Tie(candidate.backend, candidate.label, bindings, cost.seconds or 0.0, cost.interval)


def _with_runner_up(kernel: PlannedKernel, explanation: Explanation) -> PlannedKernel:
    own = next(each for each in explanation.kernels if each.candidate == kernel.candidate)
    return kernel if own.runner_up is None else replace(kernel, runner_up=_runner_up(explanation, own))


def _runner_up(explanation: Explanation, kernel: ExplainedKernel) -> RunnerUp:
    assert kernel.runner_up is not None
    rival = explanation.by_id[kernel.runner_up]
    return RunnerUp(
        rival.backend,
        rival.label,
        tuple(explanation.bindings[i].name for i in rival.bindings),
        explanation.cost(rival).seconds,
        kernel.margin,
        kernel.exact,
    )


def _tie_claim(solution: Solution) -> TieClaim:
    return TieClaim(
        tuple(option.id for option in solution.chosen),
        tuple(members(solution.left_behind)),
        solution.seconds,
        tuple((swap.taken, tuple(swap.instead)) for swap in solution.swaps),
    )


def _remarks(
    solution: Solution, without_cost: int, corrected: Sequence[str], packed: int, expected: int
) -> Iterator[str]:
    """Remarks for readers, besides the figures."""
    if not solution.is_closed:
        yield f"not proved: a plan that is up to {solution.gap:.2%} cheaper may exist"
    if solution.swaps:
        part = solution.tie_seconds / solution.seconds if solution.seconds else 0.0
        yield f"cost within {part:.2%} of the cheapest plan by tie policy: {len(solution.swaps)} kernels are ties"
    if without_cost:
        yield f"{without_cost} distinct candidates have no cost"
    if corrected:
        yield f"the cost is what the kernel took in the running program: {', '.join(corrected)}"
    if packed:
        yield f"the costs of {packed} of its kernels are from a pack and were not measured here"
    if expected:
        yield f"the costs of {expected} of its kernels are expected from those of others, and were not measured"


def _what_is_left_out(graph: DataflowGraph, solution: Solution) -> Iterator[str]:
    """A remark if TVM compiles operators that have no cost: the program takes longer than the costs of its kernels."""
    left = sum(not graph.nodes[index].is_host for index in members(solution.left_behind))
    if left and solution.seconds:
        yield f"what is predicted leaves out operators without a cost, which TVM compiles: {left}"


def _corrected(candidates: Iterable[Candidate], costs: Costs) -> list[str]:
    """The distinct kernels whose cost was replaced by their time in the running program."""
    found: dict[str, str] = {}
    for candidate in candidates:
        cost = costs.of(candidate.id)
        if cost.origin == IN_PROGRAM:
            text = f"{candidate.backend} {candidate.label} {1e6 * (cost.seconds or 0.0):.3g} us"
            found[costs.keys[candidate.id]] = text
    return list(found.values())


def _without_cost(candidates: Iterable[Candidate], costs: Costs) -> Iterable[WithoutCost]:
    """The distinct kernels without a cost, each with its reason; those that need none are left out."""
    found: dict[str, WithoutCost] = {}
    for candidate in candidates:
        cost = costs.of(candidate.id)
        is_needless = cost.is_open and cost.origin != UNKNOWN
        if cost.seconds is None and not is_needless:
            found[costs.keys[candidate.id]] = WithoutCost(candidate.backend, candidate.label, cost.reason)
    return found.values()
