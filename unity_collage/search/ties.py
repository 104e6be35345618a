"""Tie-breaking: where measured intervals overlap, a policy decides instead of the noise.

A cheapest plan is found by the estimates alone. One or several of its kernels may then be swapped for an option that
has the same effect and whose cost ties with theirs: the intervals overlap. If the options have different nodes, they
were measured at different times, and the intervals are widened by the drift of the machine
(:attr:`.problem.Problem.drift`).

Of all plans that such swaps make, the policy takes the one with the fewest transitions between backends. Next the
fewest kernels count, then the backends that the user prefers. So two runs that differ only by noise usually have the
same plan.

The policy is a lexicographic objective. It is encoded as a second problem, with counts for costs. Its options are the
kernels of the cheapest plan and the options that tie with them. The exact search solves it. The proof of the first
search is kept. A separate claim says that the plan differs from the proved one by ties alone
(:class:`.tie_claim.TieClaim`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..index_set import EMPTY, IndexSet, members
from .exact import cheapest_cover
from .plans import is_usable, solution_of
from .problem import NoCover, Option, Problem, Solution, Swap

_MAX_STATES, _BEAM = 2_000, 12
"""The limits of the second search, which must not take as long as the first. If they end it, its best plan is taken."""

_PREFERENCE = 1e-6
"""The cost of one position in the order of preference, in kernels. All positions of a plan cost less than one
kernel."""


def with_ties_broken(problem: Problem, cheapest: Solution, preference: Sequence[str] = ()) -> Solution:
    """The plan that the policy prefers among those that tie with ``cheapest``, which may be ``cheapest`` itself.

    ``preference`` has the backends, preferred ones first.
    """
    ties = list(_ties(problem, cheapest))
    if not ties:
        return cheapest
    policy = _policy(problem, cheapest, [option for option, _ in ties], preference)
    try:
        found = cheapest_cover(policy, max_states=_MAX_STATES, seconds=float("inf"), beam=_BEAM)
    except NoCover:  # a narrow beam with a small budget may find no plan at all
        return cheapest
    by_id = {option.id: option for option in problem.options}
    chosen = [by_id[option.id] for option in found.chosen]
    taken = {option.id for option in chosen} - {option.id for option in cheapest.chosen}
    swaps = tuple(Swap(option.id, ids) for option, ids in ties if option.id in taken)
    plan = solution_of(problem, chosen, cheapest.algorithm, cheapest.lower_bound, cheapest.visited)
    return _swapped(problem, cheapest, plan, swaps)


def _swapped(problem: Problem, cheapest: Solution, plan: Solution, swaps: tuple[Swap, ...]) -> Solution:
    """``plan``, if it differs from ``cheapest`` by ``swaps`` alone and its cost is within their doubt; else
    ``cheapest``."""
    gone = [identity for swap in swaps for identity in swap.instead]
    expected = {o.id for o in cheapest.chosen}.difference(gone) | {swap.taken for swap in swaps}
    more = plan.seconds - cheapest.seconds
    if not swaps or {option.id for option in plan.chosen} != expected or more > doubt(problem, swaps):
        return cheapest
    return replace(plan, tie_seconds=max(0.0, more), swaps=swaps, lower_bound=cheapest.lower_bound)


def tied_with(problem: Problem, solution: Solution) -> dict[int, tuple[tuple[int, ...], ...]]:
    """By id of a chosen option, the groups of options that tie with it and could replace it.

    An option that would replace several kernels is listed for each of them. The options that the policy has swapped for
    a chosen option are listed for it as one group.
    """
    found: dict[int, list[tuple[int, ...]]] = {swap.taken: [swap.instead] for swap in solution.swaps}
    for option, replaced in _ties(problem, solution):
        for identity in replaced:
            known = found.setdefault(identity, [])
            if (option.id,) not in known:
                known.append((option.id,))
    return {identity: tuple(instead) for identity, instead in found.items()}


def doubt(problem: Problem, swaps: Sequence[Swap]) -> float:
    """How many seconds more a plan with ``swaps`` may cost by the estimates if the true costs are within the
    intervals."""
    by_id = {option.id: option for option in problem.options}
    seconds = 0.0
    for swap in swaps:
        taken, gone = by_id[swap.taken], [by_id[identity] for identity in swap.instead]
        drift = _drift(problem, taken, gone)
        seconds += taken.seconds - taken.interval[0] * (1 - drift)
        seconds += sum(option.interval[1] * (1 + drift) - option.seconds for option in gone)
    return seconds


def _drift(problem: Problem, option: Option, group: Sequence[Option]) -> float:
    """The relative widening of the intervals: 0 between options with the same nodes, which were measured in turns."""
    same = len(group) == 1 and (group[0].inside, group[0].hidden) == (option.inside, option.hidden)
    return 0.0 if same else problem.drift


def _ties(problem: Problem, plan: Solution) -> Iterator[tuple[Option, tuple[int, ...]]]:
    """The options that could replace kernels of ``plan`` and tie with them, each with the ids of these kernels."""
    owners: dict[int, Option] = {}
    shared = EMPTY
    for option in plan.chosen:
        for index in members(option.inside):
            shared |= 1 << index if index in owners else EMPTY
            owners[index] = option
    same = {(option.inside, option.hidden): option for option in plan.chosen}
    chosen = {option.id for option in plan.chosen}
    for option in problem.options:
        if option.id in chosen or option.least is not None:  # a guess has no interval that could overlap
            continue
        equal = same.get((option.inside, option.hidden))
        group = [equal] if equal else _group(option, owners, shared)
        if any(kernel.device != option.device for kernel in group):
            continue  # copies between devices are no ties
        if group and _overlap(problem, option, group) and _does_the_same(problem, plan, option, group):
            yield option, tuple(kernel.id for kernel in group)


def _group(option: Option, owners: dict[int, Option], shared: IndexSet) -> list[Option]:
    """The kernels inside ``option``; empty if another kernel overlaps it partly."""
    group: dict[int, Option] = {}
    rest = option.inside
    if rest & shared:
        return []
    while rest:
        index = rest.bit_length() - 1
        owner = owners.get(index)
        if owner is None:  # the plan leaves the node behind
            rest ^= 1 << index
            continue
        if owner.inside & ~option.inside:
            return []
        group[owner.id] = owner
        rest &= ~owner.inside
    return list(group.values())


def _overlap(problem: Problem, option: Option, group: Sequence[Option]) -> bool:
    """Whether the intervals of the costs overlap, launches included."""
    drift = _drift(problem, option, group)
    low = problem.launch(option) + option.interval[0] * (1 - drift)
    high = problem.launch(option) + option.interval[1] * (1 + drift)
    least = sum(problem.launch(kernel) + kernel.interval[0] * (1 - drift) for kernel in group)
    most = sum(problem.launch(kernel) + kernel.interval[1] * (1 + drift) for kernel in group)
    return low <= most and least <= high


def _does_the_same(problem: Problem, plan: Solution, option: Option, group: Sequence[Option]) -> bool:
    """Whether ``option`` writes exactly the values that other kernels read of ``group`` and of nodes left behind."""
    if not is_usable(problem, option):
        return False
    written = plan.left_behind & option.inside
    for kernel in group:
        written |= problem.outputs(kernel)
    seen = EMPTY
    for index in members(written):
        if problem.readers[index] & ~option.inside or problem.wanted >> index & 1:
            seen |= 1 << index
    return problem.outputs(option) == seen


def _policy(problem: Problem, plan: Solution, tied: Sequence[Option], preference: Sequence[str]) -> Problem:
    """The problem of the policy: its cheapest plan is the one that the policy prefers.

    A kernel costs 1, a transition more than all kernels together, and the preference for a backend less than a kernel.
    Options that cost nothing are views, not kernels, and stay free.
    """
    order = {name: turn for turn, name in enumerate(dict.fromkeys(preference))}
    options = [*plan.chosen, *tied]
    free = {option.id for option in options if problem.cost(option) == 0.0}
    names = dict.fromkeys(option.backend for option in options if option.id not in free)
    more_than_all_kernels = float(len(plan.chosen) + 1)
    counted = tuple(
        replace(
            option,
            seconds=0.0 if option.id in free else 1.0 + _PREFERENCE * order.get(option.backend, len(order)),
            low=None,
            high=None,
        )
        for option in sorted(options, key=lambda option: option.id)
    )
    return replace(
        problem,
        free=plan.left_behind,
        options=counted,
        launch_seconds=0.0,
        launches={},
        transitions={(a, b): more_than_all_kernels for a in names for b in names if a != b},
    )
