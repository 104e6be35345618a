"""Checks what plans for a range of sizes claim: their cost at each sample, and the regret there.

The problems come from the plans, or are built again from the annotations by :mod:`.posed`. Nothing here shares code
with the searches, or with the pass that decides which variants stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import fsum

from ..search import Problem
from ..search.certificate import why_not
from ..search.validity import ROUNDING
from .check import Finding, milliseconds
from .check_problems import are_equal, why_another_problem, why_malformed, why_not_in, why_wrong_weights
from .instance import unpacked
from .plan import Plan
from .ranges import RangeClaim, SizeClaim, named, regret_text

Stated = Callable[[str], Problem | None]
"""The problem that the annotations of a function state, by its name; None where they are not at hand."""


def checked_range(plans: Mapping[str, Plan], name: str, fails: Mapping[str, bool], stated: Stated) -> Finding:
    """The verdict on the range that the plan of the function ``name`` claims.

    ``fails``: for each function, whether its own plan does not hold.
    """
    claim = plans[name].range
    assert claim is not None
    reason = why_range_does_not_hold(plans, name, fails, stated)
    return Finding(reason is None, "; ".join(_parts(claim)) if reason is None else f"does not hold: {reason}")


def why_range_does_not_hold(
    plans: Mapping[str, Plan], name: str, fails: Mapping[str, bool], stated: Stated
) -> str | None:
    """What is wrong with the range that the plan of ``name`` claims, or None."""
    plan = plans[name]
    claim = plan.range
    if claim is None or not claim.sizes:
        return "it claims nothing about any size"
    if plan.kernels or plan.proved or plan.certificate is not None:
        return "it chooses between plans, and has kernels or a proof of its own"
    if reason := why_wrong_weights([each.weight for each in claim.sizes]):
        return reason
    if reason := _why_incomplete(claim, plan, plans):
        return reason
    for each in claim.sizes:
        reason = (
            _why_wrong_best(each, plans, fails, stated)
            or _why_wrong_run(each, plan, plans, fails)
            or _why_wrong_regret(each)
        )
        if reason:
            return f"at {named(each.sizes)}: {reason}"
    kept = {each.variant for each in claim.sizes if each.runs == each.variant}
    if not kept <= set(plan.variants):
        return "it runs a variant that is not one of its variants"
    for variant, sizes in plan.variants.items():
        if variant in plans and dict(plans[variant].sizes) != dict(sizes):
            return f"{variant} is not for {named(sizes)}"
    if reason := _why_other_variants(claim, plan, plans) or _why_not_between(claim, plan, plans):
        return reason
    expected = fsum(each.weight * each.seconds for each in claim.sizes)
    if not are_equal(expected, claim.expected_seconds):
        return f"the expected cost is {expected} s, not {claim.expected_seconds} s"
    greatest = max(each.regret for each in claim.sizes)
    if not are_equal(greatest, claim.greatest_regret):
        return f"the greatest regret is {greatest} s, not {claim.greatest_regret} s"
    return None


def _why_incomplete(claim: RangeClaim, main: Plan, plans: Mapping[str, Plan]) -> str | None:
    """Which sample the claim leaves out, or weighs differently from the plan for all sizes, or None.

    It may leave out one whose variant has no certificate or no costs, since nothing was searched for it. It may have
    samples at which the plan for all sizes was not weighed: a variant runs there. The sizes between its samples have
    no variant, and a plan for all sizes is weighed there.
    """
    mine = {_key(each.sizes): each.weight for each in claim.sizes}
    if len(mine) < len(claim.sizes) or () in mine:
        return "it names a sample twice, or one without sizes"
    between = {_key(sizes) for sizes in claim.between}
    for shared in plans.values():
        theirs = {_key(at.sizes): at.weight for at in shared.at_samples}
        if not theirs or shared.sizes:
            continue
        for at in shared.at_samples:
            variants = [name for name, sizes in main.variants.items() if _is_for(sizes, at.sizes)]
            searched = [name for name in variants if _is_searched(plans.get(name))]
            if _key(at.sizes) not in {*mine, *between} and (searched or not variants):
                return f"it does not say what runs at {named(at.sizes)}"
        both = [key for key in mine if key in theirs]
        own, total = fsum(mine[key] for key in both), fsum(theirs[key] for key in both)
        for each in claim.sizes:
            key = _key(each.sizes)
            if key in theirs and not are_equal(theirs[key] / total, each.weight / own):
                return f"the weight of {named(each.sizes)} is not that of the plan for all sizes"
    return None


def _why_not_between(claim: RangeClaim, main: Plan, plans: Mapping[str, Plan]) -> str | None:
    """Which size is said to be between the samples and has a plan of its own, or no plan is weighed there, or None."""
    weighed = {_key(at.sizes) for plan in plans.values() for at in plan.at_samples}
    own = [each.sizes for each in claim.sizes] + [*main.variants.values()]
    for sizes in claim.between:
        if any(_is_for(each, sizes) for each in own):
            return f"{named(sizes)} is not between the samples: it has a plan of its own"
        if _key(sizes) not in weighed:
            return f"no plan is weighed at {named(sizes)}"
    return None


def _why_other_variants(claim: RangeClaim, main: Plan, plans: Mapping[str, Plan]) -> str | None:
    """Which variant the claim names twice, or does not name although its plan was searched, or None."""
    claimed = [each.variant for each in claim.sizes]
    if twice := [name for name in claimed if claimed.count(name) > 1]:
        return f"it names {twice[0]} twice"
    silent = (name for name in main.variants if name not in claimed and _is_searched(plans.get(name)))
    return next((f"it does not say what runs at {named(main.variants[name])}" for name in silent), None)


def _is_searched(plan: Plan | None) -> bool:
    """Whether a variant has a plan that a claim can be compared with."""
    return plan is not None and plan.certificate is not None and plan.has_costs


def _key(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


def _is_for(variant: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Whether a variant is called for these sizes; it may leave some open."""
    return all(sizes.get(name) == size for name, size in variant.items())


def _why_wrong_best(
    each: SizeClaim, plans: Mapping[str, Plan], fails: Mapping[str, bool], stated: Stated
) -> str | None:
    """Why the cheapest static plan has another cost than claimed, or is not proved as claimed."""
    own = plans.get(each.variant)
    if own is not None:
        if fails[each.variant]:
            return f"the plan of {each.variant} does not hold"
        if not own.sizes or not _is_for(own.sizes, each.sizes):
            return f"{each.variant} is for other sizes"
    certificate = own.certificate if own is not None else None
    if certificate is None and each.certificate is not None:  # the variant was left out, or has a given plan
        certificate = each.certificate
        problem = unpacked(each.problem)
        there = stated(each.variant)
        reason = why_malformed(problem) or (there and why_another_problem(problem, there))
        if reason := reason or why_not(problem, certificate):
            return f"the static plan: {reason}"
        if own is not None and (reason := why_not_in(problem, own)):
            return f"{each.variant}: {reason}"
    if certificate is None:
        return "there is no certificate of the static plan"
    if not are_equal(certificate.seconds, each.best_seconds):
        return f"the static plan costs {certificate.seconds} s, not {each.best_seconds} s"
    if certificate.proved != each.proved:
        return f"it is said to be {'' if each.proved else 'not '}proved, and its certificate says otherwise"
    return None


def _why_wrong_run(
    each: SizeClaim, main: Plan, plans: Mapping[str, Plan], fails: Mapping[str, bool]
) -> str | None:
    """Why the function that runs at a sample has another cost than claimed."""
    if each.runs == each.variant:
        cost = plans[each.runs].seconds if each.runs in plans else None
    else:
        shared = plans.get(each.runs)
        if shared is not None and fails[each.runs]:
            return f"the plan of {each.runs} does not hold"
        if shared is not None and any(_is_for(sizes, each.sizes) for sizes in main.variants.values()):
            return f"there is a variant for this size, and {each.runs} is said to run"
        known = (
            [] if shared is None else [at for at in shared.at_samples if dict(at.sizes) == dict(each.sizes)]
        )
        cost = known[0].seconds if known else None
    if cost is None:
        return f"no plan says what {each.runs} costs there"
    return (
        None if are_equal(cost, each.seconds) else f"{each.runs} costs {cost} s there, not {each.seconds} s"
    )


def _why_wrong_regret(each: SizeClaim) -> str | None:
    regret = each.seconds - each.best_seconds
    if abs(regret - each.regret) <= ROUNDING * max(abs(each.seconds), abs(each.best_seconds)):
        return None
    return f"the regret is {regret} s, not {each.regret} s"


def _parts(claim: RangeClaim) -> Iterator[str]:
    """``4 sizes, 5.02 ms expected; the greatest regret is 0.31 ms (6.2% of the best static plan, at batch 1)``."""
    yield f"{len(claim.sizes)} sizes, {milliseconds(claim.expected_seconds)} expected"
    yield regret_text(claim)
