"""Checks plans and their certificates independently of the search.

A plan carries the problem that it answers (:mod:`.instance`) and a certificate. That is enough to check the plan of a
saved program. With the annotated function that was searched, the problem itself is checked too: it is built again
from the annotations (:mod:`.posed`). Nothing here shares code with the searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..index_set import members
from ..search import Option, Problem
from ..search.certificate import Certificate, why_not
from ..search.tie_claim import why_not_ties
from ..search.validity import ROUNDING, launch
from .candidate import VIEW
from .check_problems import why_another_problem, why_malformed, why_samples_do_not_hold
from .instance import unpacked
from .plan import Plan, PlannedKernel, hidden_by_limits
from .posed import PosedSample

GIVEN = "the plan has no certificate: it was given, not searched"


@dataclass(frozen=True, slots=True)
class Finding:
    """The checker's verdict on one plan, in a line."""

    holds: bool
    text: str


def checked(
    plan: Plan, stated: Problem | None = None, stated_samples: Sequence[PosedSample] | None = None
) -> Finding:
    """The verdict on ``plan``; raises InvalidAnnotation if its problem cannot be read.

    ``stated``: the problem that the annotations of the searched function state, if they are at hand;
    ``stated_samples`` those that they state for each sample, if the plan is for all sizes.
    """
    if plan.certificate is None and not plan.proved:
        if plan.lower_bound > 0.0:
            return Finding(False, "does not hold: it claims a lower bound, and has no certificate")
        return Finding(True, "given, not searched: it claims no bound")
    if not plan.problem and stated is None:
        return Finding(False, "does not hold: it does not carry the problem that it answers")
    own = unpacked(plan.problem) if plan.problem else stated
    assert own is not None
    reason = why_malformed(own) or (stated and why_another_problem(own, stated))
    reason = reason or why_plan_does_not_hold(own, plan) or why_samples_do_not_hold(own, plan, stated_samples)
    return Finding(
        reason is None, "; ".join(_parts(own, plan)) if reason is None else f"does not hold: {reason}"
    )


def why_plan_does_not_hold(problem: Problem, plan: Plan) -> str | None:
    """What is wrong with ``plan`` and its certificate as an answer to ``problem``, or None.

    The checker shares no code with the searches. Where the policy for ties was applied, it also checks that the plan
    differs from the certified one only by ties.
    """
    if plan.certificate is None:
        return GIVEN
    reason = why_not(problem, plan.certificate)
    if reason is None and plan.tie_policy is not None:
        reason = why_not_ties(problem, plan.certificate, plan.tie_policy)
    return reason or _why_another_claim(problem, plan)


def _why_another_claim(problem: Problem, plan: Plan) -> str | None:
    """Why the plan contradicts its certificate, or None."""
    certificate = plan.certificate
    assert certificate is not None
    if plan.proved != certificate.proved:
        return f"the plan says proved: {plan.proved}, its certificate {certificate.proved}"
    return _why_other_seconds(plan, certificate) or _why_other_kernels(problem, plan, certificate)


def _why_other_seconds(plan: Plan, certificate: Certificate) -> str | None:
    """Why the plan has other figures than its certificate, or None."""
    seconds = (plan.tie_policy or certificate).seconds
    for said, certified in ((plan.seconds, seconds), (plan.lower_bound, certificate.lower_bound)):
        if not abs(said - certified) <= ROUNDING * max(abs(said), abs(certified)):
            return f"the plan says {said} s, its certificate {certified} s"
    more = max(0.0, seconds - certificate.seconds)
    if not abs(plan.more_than_cheapest - more) <= ROUNDING * abs(seconds):
        return f"it costs {more} s more than the cheapest plan, not {plan.more_than_cheapest} s"
    gap = max(0.0, seconds - more - certificate.lower_bound) / seconds if seconds else 0.0
    return None if abs(plan.gap - gap) <= ROUNDING else f"the gap of the plan is {gap}, not {plan.gap}"


def _why_other_kernels(problem: Problem, plan: Plan, certificate: Certificate) -> str | None:
    """Why the kernels of the plan, or what it says of all, are not those of its certificate, or None."""
    claim = plan.tie_policy or certificate
    by_id = {option.id: option for option in problem.options}
    options = [by_id[identity] for identity in claim.chosen]
    chosen = [option for option in options if option.backend != VIEW]
    if [*map(_of_kernel, plan.kernels)] != [*map(_of_option, chosen)]:
        return "the kernels of the plan are not those of its certificate"
    for kernel, option in zip(plan.kernels, chosen, strict=True):
        if option.device not in ("", kernel.device):
            return f"kernel {kernel.function} runs on {option.device}, not on {kernel.device or 'any device'}"
    expected = sum(option.least is not None for option in chosen)
    if plan.expected != expected:
        return f"{expected} of its kernels have expected costs, not {plan.expected}"
    launches = {option.backend: launch(problem, option) for option in chosen}
    told = {**dict.fromkeys(launches, plan.launch_seconds), **plan.launches}
    if plan.launch_seconds != problem.launch_seconds or told != launches:
        return "its launches cost something else than those of its certificate"
    left = {*claim.left_behind, *(node for o in options if o.backend == VIEW for node in members(o.inside))}
    if len(plan.left_behind) != len(left):
        return f"{len(left)} bindings are in no kernel, not {len(plan.left_behind)}"
    return None


def _of_kernel(kernel: PlannedKernel) -> tuple[object, ...]:
    return kernel.candidate, kernel.backend, kernel.seconds, kernel.interval


def _of_option(option: Option) -> tuple[object, ...]:
    interval = None if option.low is None else (option.low, option.high)
    return option.id, option.backend, option.seconds, interval


def _parts(problem: Problem, plan: Plan) -> Iterator[str]:
    """``proved: 1.23 ms, and no plan of its 4508 candidates costs less``, and more."""
    certificate = plan.certificate
    assert certificate is not None
    cost, offered = milliseconds(plan.seconds), f"{len(problem.options)} candidates"
    if plan.proved:
        ties = " by more than ties" if plan.tie_policy is not None else ""
        yield f"proved: {cost}, and no plan of its {offered} costs less{ties}"
    else:
        yield f"searched, not proved: {cost} for a valid plan of its {offered}"
        if certificate.lower_bound > certificate.proved_seconds:
            bound = milliseconds(certificate.lower_bound)
            yield f"by the bound of its {certificate.algorithm} search none costs less than {bound}"
        yield f"it is proved that none costs less than {milliseconds(certificate.proved_seconds)}"
    if certificate.enumeration is not None:
        yield "the proof is an enumeration"
    if certificate.branches:
        yield f"the proof has {len(certificate.branches)} cases"
    if plan.at_samples:
        yield f"weighed over {len(plan.at_samples)} size{'' if len(plan.at_samples) == 1 else 's'}"
    if not problem.redundant:
        yield "no operator may be computed twice"
    yield from hidden_by_limits(plan.declined)


def milliseconds(seconds: float) -> str:
    """Seconds as text, in milliseconds."""
    return f"{seconds * 1e3:.4g} ms"
