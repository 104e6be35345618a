"""Checks the problems that plans carry: well-formed, those of the annotations, and weighted sums over samples.

Nothing here shares code with the searches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, isfinite

from ..search import Option, Problem
from ..search.validity import ROUNDING, why_wrong_cost
from .instance import unpacked
from .plan import Plan
from .posed import PosedSample, weighted_sum
from .ranges import named


def why_malformed(problem: Problem) -> str | None:
    """Why ``problem`` is not well-formed, or None."""
    count = len(problem.sources)
    for node, sources in enumerate(problem.sources):
        if not all(0 <= source < node for source in sources):
            return f"node {node} reads a node that does not come before it"
    if len({option.id for option in problem.options}) < len(problem.options):
        return "two options have one id"
    for option in problem.options:
        if not 0 < option.inside < 1 << count or option.hidden & ~option.inside:
            return f"option {option.id} has nodes that do not exist"
        if not isfinite(option.seconds):
            return f"option {option.id} has no cost"
        if option.least is not None and not isfinite(option.least):
            return f"option {option.id} has no lower bound"
        if not all(map(isfinite, option.interval)):
            return f"option {option.id} has no interval"
    devices, backends = (
        {getattr(option, side) for option in problem.options} for side in ("device", "backend")
    )
    if both := devices & backends - {""}:
        return f"{min(both)} is a device and a backend"
    for seconds in problem.transitions.values():
        if isinstance(seconds, tuple) and len(seconds) != count:
            return "transitions are not for each node"
        if not all(map(isfinite, seconds if isinstance(seconds, tuple) else (seconds,))):
            return "a transition is not a finite number"
    if not all(map(isfinite, (problem.launch_seconds, *problem.launches.values(), problem.drift))):
        return "a launch, or the drift, is not a finite number"
    return None


def why_another_problem(own: Problem, stated: Problem) -> str | None:
    """How the problem that a plan carries differs from the one that the annotations state, or None."""
    for name in ("sources", "free", "results", "launch_seconds", "exclusions", "drift"):
        if getattr(own, name) != getattr(stated, name):
            return f"the annotations state another problem: {name} differ"
    for name in ("launches", "transitions"):
        if dict(getattr(own, name)) != dict(getattr(stated, name)):
            return f"the annotations state another problem: {name} differ"
    there: Mapping[int, Option] = {option.id: option for option in stated.options}
    mine: Mapping[int, Option] = {option.id: option for option in own.options}
    for identity in sorted({*there, *mine}):
        if there.get(identity) != mine.get(identity):
            return f"the annotations state another problem: candidate {identity} differs"
    return None


def why_samples_do_not_hold(
    problem: Problem, plan: Plan, stated: Sequence[PosedSample] | None = None
) -> str | None:
    """Why a plan for all sizes has another cost at its samples than it claims, or answers another problem than their
    weighted sum.
    """
    samples: list[PosedSample] = []
    for each in plan.at_samples:
        there, where = unpacked(each.problem), f"at {named(each.sizes)}"
        if (
            reason := why_malformed(there)
            or _why_another_frame(problem, there)
            or _why_wrong_at(there, plan, each.seconds)
        ):
            return f"{where}: {reason}"
        samples.append(PosedSample(each.sizes, each.weight, there))
    if reason := why_wrong_weights([sample.weight for sample in samples]):
        return reason
    if stated is not None and (reason := _why_other_samples(samples, stated)):
        return reason
    if samples and (reason := why_another_problem(problem, weighted_sum(samples))):
        return f"its problem is not the weighted sum of those at its samples: {reason.rpartition(': ')[2]}"
    return None


def _why_other_samples(own: Sequence[PosedSample], stated: Sequence[PosedSample]) -> str | None:
    if [(dict(each.sizes), each.weight) for each in own] != [
        (dict(each.sizes), each.weight) for each in stated
    ]:
        return "the annotations state other samples, or other weights"
    for mine, there in zip(own, stated, strict=True):
        if reason := why_another_problem(mine.problem, there.problem):
            return f"at {named(mine.sizes)}: {reason}"
    return None


def _why_another_frame(whole: Problem, there: Problem) -> str | None:
    """How the problem at a sample differs from the weighted one apart from costs."""
    for field in ("sources", "free", "results", "redundant", "launch_seconds", "exclusions"):
        if getattr(whole, field) != getattr(there, field):
            return f"another problem: {field} differ"
    if dict(whole.launches) != dict(there.launches) or set(whole.transitions) != set(there.transitions):
        return "another problem: launches or transitions differ"
    if [*map(_frame_of, whole.options)] != [*map(_frame_of, there.options)]:
        return "another problem: candidates differ"
    return None


def _frame_of(option: Option) -> tuple[object, ...]:
    """An option apart from its costs."""
    return option.id, option.inside, option.hidden, option.backend, option.device, option.is_open


def _why_wrong_at(there: Problem, plan: Plan, seconds: float) -> str | None:
    claim = plan.tie_policy or plan.certificate
    if claim is None:
        return "the plan has no certificate"
    by_id = {option.id: option for option in there.options}
    return why_wrong_cost(there, [by_id[id_] for id_ in claim.chosen], claim.left_behind, seconds)


def why_not_in(there: Problem, plan: Plan) -> str | None:
    """Why a plan that was given, not searched, does not cost in this problem what it claims, or None.

    It names its kernels, and not its views, which cost nothing.
    """
    by_id = {option.id: option for option in there.options}
    if unknown := [kernel.label for kernel in plan.kernels if kernel.candidate not in by_id]:
        return f"{unknown[0]} is no candidate with a cost"
    seconds = fsum(there.cost(by_id[kernel.candidate]) for kernel in plan.kernels)
    if not there.has_transitions and not are_equal(seconds, plan.seconds):
        return f"its kernels cost {seconds} s there, not {plan.seconds} s"
    return None


def why_wrong_weights(weights: Sequence[float]) -> str | None:
    """Why these are not the weights of all calls, or None."""
    if not weights or (all(weight > 0 for weight in weights) and are_equal(fsum(weights), 1.0)):
        return None
    return f"the weights of the samples add up to {fsum(weights)}, not 1, or are not positive"


def are_equal(one: float, other: float) -> bool:
    """Whether two sums of the same costs are equal, up to rounding."""
    return abs(one - other) <= ROUNDING * max(abs(one), abs(other))
