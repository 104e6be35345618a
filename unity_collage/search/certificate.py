"""What a search claims, and an independent check of the claim.

The check follows the definition in ``problem`` and shares no code with the searches: it reads only the fields of the
problem. To trust a plan it is enough to read this file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from ..index_set import members
from .problem import Option, Problem, Solution

_ROUNDING = 1e-9
"""How far two sums of the same costs may differ, relative to their value."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A claim about one plan, as plain data: its ``dataclasses.asdict`` can be written as JSON."""

    chosen: tuple[int, ...]
    """Ids of the options, in an order in which they can run."""
    left_behind: tuple[int, ...]
    """Nodes."""
    seconds: float
    """Costs, launches and transitions together."""
    lower_bound: float
    gap: float
    proved: bool
    """Whether no valid plan is cheaper, up to rounding."""
    algorithm: str
    potentials: tuple[float, ...] = ()
    """A proof of the lower bound, if given: seconds for each node, such that those inside each option sum to at most
    its cost. A free node has at most 0, and if nodes may be computed twice, no node has less than 0. Then each valid
    plan costs at least the sum of all potentials."""


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
    expected = Counter(certificate.chosen)
    for taken, instead in claim.swaps:
        if Counter(instead) - expected:
            return f"option {taken} replaces options that are not in the certified plan"
        expected = expected - Counter(instead) + Counter([taken])
    if Counter(claim.chosen) != expected:
        return "the plans differ by more than the swaps"
    for taken, instead in claim.swaps:
        reason = _why_no_tie(problem, by_id[taken], [by_id[identity] for identity in instead])
        if reason is not None:
            return reason
    kernels, left = _kernels(problem, [by_id[i] for i in claim.chosen]), sorted(claim.left_behind)
    return _why_not_valid(problem, kernels, left) or _why_wrong_cost(problem, kernels, left, claim.seconds)


def _why_no_tie(problem: Problem, taken: Option, instead: Sequence[Option]) -> str | None:
    """Why the intervals of an option and of the options that it replaces do not overlap, or None."""
    nodes = set(members(taken.inside))
    if not all(nodes.issuperset(members(option.inside)) for option in instead):
        return f"option {taken.id} does not compute all nodes of the options that it replaces"
    rivals = [(option.inside, option.hidden) for option in instead] == [(taken.inside, taken.hidden)]
    drift = 0.0 if rivals else problem.drift
    low, high = _paid(problem, [taken], drift)
    least, most = _paid(problem, instead, drift)
    if low > most * (1 + _ROUNDING) or least > high * (1 + _ROUNDING):
        return f"option {taken.id} does not tie: {low} s to {high} s against {least} s to {most} s"
    return None


def _paid(problem: Problem, options: Sequence[Option], drift: float) -> tuple[float, float]:
    """The interval of the total cost of ``options`` in seconds, launches included."""
    least = fsum(option.interval[0] * (1 - drift) + _launch(problem, option) for option in options)
    return least, fsum(option.interval[1] * (1 + drift) + _launch(problem, option) for option in options)


def certificate_of(problem: Problem, solution: Solution, potentials: Sequence[float] = ()) -> Certificate:
    """The claim of ``solution``; it includes ``potentials`` if their sum reaches the lower bound."""
    reach = len(potentials) == len(problem) and not _below(fsum(potentials), solution.lower_bound)
    return Certificate(
        chosen=tuple(option.id for option in solution.chosen),
        left_behind=tuple(members(solution.left_behind)),
        seconds=solution.seconds,
        lower_bound=solution.lower_bound,
        gap=solution.gap,
        proved=solution.proved,
        algorithm=solution.algorithm,
        potentials=tuple(potentials) if reach else (),
    )


def why_not(problem: Problem, certificate: Certificate) -> str | None:
    """The first error in the claim, or None."""
    by_id = {option.id: option for option in problem.options}
    for identity in certificate.chosen:
        if identity not in by_id:
            return f"option {identity} does not exist"
    kernels = _kernels(problem, [by_id[identity] for identity in certificate.chosen])
    left = sorted(certificate.left_behind)
    return (
        _why_not_valid(problem, kernels, left)
        or _why_wrong_cost(problem, kernels, left, certificate.seconds)
        or _why_wrong_bound(problem, certificate)
    )


def why_not_valid(problem: Problem, chosen: Sequence[Option], left_behind: Iterable[int]) -> str | None:
    """Why these options, in this order, and these nodes left behind are not a valid plan, or None."""
    return _why_not_valid(problem, _kernels(problem, chosen), sorted(left_behind))


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A chosen option with its border."""

    option: Option
    inside: set[int]
    reads: set[int]
    border: set[int]
    """Inside nodes that are read outside or wanted by the caller."""
    writes: set[int]


def _kernels(problem: Problem, chosen: Sequence[Option]) -> list[_Kernel]:
    readers: dict[int, set[int]] = {}
    for node, sources in enumerate(problem.sources):
        for source in sources:
            readers.setdefault(source, set()).add(node)
    kernels: list[_Kernel] = []
    for option in chosen:
        inside = set(members(option.inside))
        reads = {source for node in inside for source in problem.sources[node]} - inside
        border = {n for n in inside if n not in readers or readers[n] - inside or problem.results >> n & 1}
        kernels.append(_Kernel(option, inside, reads, border, border - set(members(option.hidden))))
    return kernels


def _why_not_valid(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> str | None:
    return (
        _why_not_alone(problem, kernels, left)
        or _why_not_as_wanted(problem, kernels, left)
        or _why_out_of_order(problem, kernels, left)
    )


def _why_not_alone(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> str | None:
    """The first option or node that breaks a rule by itself, or is covered too often, or None."""
    for node in left:
        if not problem.free >> node & 1:
            return f"node {node} must not be left behind"
    for kernel in kernels:
        if max(kernel.inside) not in kernel.writes:
            return f"option {kernel.option.id} does not write its last node"
        if kernel.border != kernel.writes and not problem.redundant:
            return f"option {kernel.option.id} hides node {min(kernel.border - kernel.writes)}"
    times = Counter(node for kernel in kernels for node in kernel.inside) + Counter(left)
    for node in range(len(problem.sources)):
        if times[node] != 1 and not problem.redundant:
            return f"node {node} is covered {times[node]} times"
    return None


def _why_not_as_wanted(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> str | None:
    """The first node that breaks the rule that wanted values are written once and others never, or None."""
    read_by_nodes = {source for sources in problem.sources for source in sources}
    wanted = set(range(len(problem.sources))) - read_by_nodes | set(members(problem.results))
    wanted.update(source for node in left for source in problem.sources[node])
    wanted.update(node for kernel in kernels for node in kernel.reads)
    written = Counter(node for kernel in kernels for node in kernel.writes) + Counter(left)
    for node in range(len(problem.sources)):
        if node in wanted and written[node] != 1:
            return f"node {node} is wanted and written {written[node]} times"
        if node not in wanted and written[node]:
            return f"node {node} is written and not wanted"
    return None


def _why_out_of_order(problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int]) -> str | None:
    """The first kernel that runs before one of its inputs is available, or None.

    A value is available after the kernel that writes it, a node left behind after the last of its sources.
    """
    comes = {node: turn for turn, kernel in enumerate(kernels) for node in kernel.writes}
    for node in left:
        comes[node] = max((comes[source] for source in problem.sources[node]), default=-1)
    for turn, kernel in enumerate(kernels):
        for node in kernel.reads:
            if comes[node] >= turn:
                return f"option {kernel.option.id} runs before node {node}, which it reads, is available"
    return None


def _why_wrong_cost(
    problem: Problem, kernels: Sequence[_Kernel], left: Sequence[int], seconds: float
) -> str | None:
    writer = {node: kernel.option.backend for kernel in kernels for node in kernel.writes}
    origins = {node: {node} for node in writer}
    for node in left:
        origins[node] = {origin for source in problem.sources[node] for origin in origins[source]}
    read = {(o, k.option.backend) for k in kernels for node in k.reads for o in origins[node]}
    crossings = [(writer[origin], reader) for origin, reader in read if writer[origin] != reader]
    cost = fsum(
        [kernel.option.seconds + _launch(problem, kernel.option) for kernel in kernels]
        + [problem.transitions.get(crossing, 0.0) for crossing in crossings]
    )
    if not abs(cost - seconds) <= _ROUNDING * cost:
        return f"it costs {cost} s, not {seconds} s"
    return None


def _why_wrong_bound(problem: Problem, claim: Certificate) -> str | None:
    if not claim.lower_bound <= claim.seconds * (1 + _ROUNDING):
        return f"lower bound {claim.lower_bound} s is above the cost {claim.seconds} s"
    gap = max(0.0, claim.seconds - claim.lower_bound) / claim.seconds if claim.seconds else 0.0
    if not abs(gap - claim.gap) <= _ROUNDING or claim.proved != (claim.gap <= _ROUNDING):
        return f"gap {claim.gap}, proved {claim.proved}: the gap is {gap}"
    return why_not_potentials(problem, claim.potentials, claim.lower_bound) if claim.potentials else None


def why_not_potentials(problem: Problem, potentials: Sequence[float], lower_bound: float) -> str | None:
    """Why these potentials do not prove the bound, or None. ``fsum`` rounds only once, so its sign is exact."""
    if len(potentials) != len(problem.sources):
        return f"{len(potentials)} potentials for {len(problem.sources)} nodes"
    for node, potential in enumerate(potentials):
        if problem.free >> node & 1 and not potential <= 0:
            return f"node {node} is free, its potential is {potential}"
        if problem.redundant and not potential >= 0:
            return f"node {node} may be computed twice, its potential is {potential}"
    for option in problem.options:
        held = [potentials[node] for node in members(option.inside)]
        if not fsum([*held, -option.seconds, -_launch(problem, option)]) <= 0:
            return f"option {option.id} costs less than its potentials of {fsum(held)} s"
    if _below(fsum(potentials), lower_bound):
        return f"the potentials prove {fsum(potentials)} s, not {lower_bound} s"
    return None


def _launch(problem: Problem, option: Option) -> float:
    return problem.launches.get(option.backend, problem.launch_seconds)


def _below(small: float, large: float) -> bool:
    """Whether ``small`` is less than ``large`` by more than rounding."""
    return not small >= large - _ROUNDING * abs(large)
