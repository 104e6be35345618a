"""What the policy for ties claims about a plan, and an independent check of the claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from ..index_set import members
from .certificate import Certificate, why_unmeasured
from .problem import Option, Problem
from .validity import ROUNDING, launch, why_not_valid, why_wrong_cost


@dataclass(frozen=True, slots=True)
class TieClaim:
    """A claim about a plan that was made of a certified plan by swapping kernels whose costs tie."""

    chosen: tuple[int, ...]
    """Ids of the options, in an order in which they can run."""
    left_behind: tuple[int, ...]
    seconds: float
    swaps: tuple[tuple[int, tuple[int, ...]], ...]
    """Each swap: the option that was taken, and the options of the certified plan that it replaces."""


def why_not_ties(problem: Problem, certificate: Certificate, claim: TieClaim) -> str | None:
    """Why the claim is wrong that the plan differs from the certified plan by ties alone, or None."""
    by_id = {option.id: option for option in problem.options}
    for identity in (*claim.chosen, *(taken for taken, _ in claim.swaps)):
        if identity not in by_id:
            return f"option {identity} does not exist"
    left = Counter(certificate.chosen)
    for taken, instead in claim.swaps:
        if Counter(instead) - left:
            return f"option {taken} replaces options that are not in the certified plan"
        left -= Counter(instead)
    if Counter(claim.chosen) != left + Counter(taken for taken, _ in claim.swaps):
        return "the plans differ by more than the swaps"
    for taken, instead in claim.swaps:
        reason = _why_no_tie(problem, by_id[taken], [by_id[identity] for identity in instead])
        if reason is not None:
            return reason
    chosen = [by_id[identity] for identity in claim.chosen]
    swaps = [(by_id[taken], [by_id[identity] for identity in instead]) for taken, instead in claim.swaps]
    doubt = fsum(_doubt(problem, taken, instead) for taken, instead in swaps)
    return (
        why_unmeasured(chosen)
        or why_not_valid(problem, chosen, claim.left_behind)
        or why_wrong_cost(problem, chosen, claim.left_behind, claim.seconds)
        or _why_more_than(doubt, claim.seconds, certificate.seconds)
    )


def _why_more_than(doubt: float, seconds: float, cheapest: float) -> str | None:
    """Why the swaps add more than ``doubt`` seconds to the cost of the cheapest plan, or None."""
    more = seconds - cheapest
    if more <= doubt + ROUNDING * abs(seconds):
        return None
    return f"the swaps add {more} s, and the intervals of their costs allow {doubt} s"


def _doubt(problem: Problem, taken: Option, instead: Sequence[Option]) -> float:
    """How many seconds a swap may add by the estimates if the true costs are within the intervals."""
    drift = _drift(problem, taken, instead)
    least = taken.interval[0] * (1 - drift)
    most = fsum(option.interval[1] * (1 + drift) for option in instead)
    return fsum([taken.seconds, -least, most, *(-option.seconds for option in instead)])


def _drift(problem: Problem, taken: Option, instead: Sequence[Option]) -> float:
    """The relative widening of the intervals: 0 between options with the same nodes."""
    rivals = [(option.inside, option.hidden) for option in instead] == [(taken.inside, taken.hidden)]
    return 0.0 if rivals else problem.drift


def _why_no_tie(problem: Problem, taken: Option, instead: Sequence[Option]) -> str | None:
    """Why the intervals of an option and of the options that it replaces do not overlap, or None."""
    if taken.least is not None:
        return f"option {taken.id} was not measured, so it ties with none"
    nodes = set(members(taken.inside))
    if not all(nodes.issuperset(members(option.inside)) for option in instead):
        return f"option {taken.id} does not compute all nodes of the options that it replaces"
    if any(option.device != taken.device for option in instead):
        return f"option {taken.id} runs on another device than the options that it replaces"
    drift = _drift(problem, taken, instead)
    low, high = _paid(problem, [taken], drift)
    least, most = _paid(problem, instead, drift)
    if low > most * (1 + ROUNDING) or least > high * (1 + ROUNDING):
        return f"option {taken.id} does not tie: {low} s to {high} s against {least} s to {most} s"
    return None


def _paid(problem: Problem, options: Sequence[Option], drift: float) -> tuple[float, float]:
    """The interval of the total cost of ``options`` in seconds, launches included."""
    least = fsum(option.interval[0] * (1 - drift) + launch(problem, option) for option in options)
    return least, fsum(option.interval[1] * (1 + drift) + launch(problem, option) for option in options)
