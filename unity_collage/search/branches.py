"""A proof by cases, where one linear program does not prove enough, and an independent check of it.

A *branch* fixes some options to be in the plan and others not to be. Two branches that fork at an option, one with it
and one without it, leave out no plan. So the cheapest plan costs at least the least bound of all branches.

*The bound of a branch.* Its plans have none of the options left out, and none that is incompatible with one taken.
They are plans of a smaller problem. There an option that is taken may have any cost: it is in every plan of the
branch, so all costs change by the same seconds. A :class:`.proof.BoundProof` is checked against that problem, and
then the bound is changed back by these seconds.

*Incompatible options.* Where no node is computed twice, two options with a common node; and two of which each depends
on the other, since every path between them leads from kernel to kernel. Where nodes may be computed twice, two that
write the same value, and two of which each reads what the other writes. In both cases, two of backends that exclude
each other. A branch whose taken options are incompatible, or wait for each other in a cycle, has no plan.

This file shares no code with the searches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from math import fsum, inf, isfinite

from ..index_set import IndexSet, members
from .problem import Option, Problem
from .proof import BoundProof, Conditions, why_no_proof
from .validity import seconds_of_only

Fork = tuple[int, int]
"""The id of an option, and 1 if it is taken or 0 if it is left out."""


@dataclass(frozen=True, slots=True)
class ProofBranch:
    """The plans that take some options and leave out others, with a bound of their cost, as plain data."""

    forks: tuple[Fork, ...]
    """From the root of the tree on."""
    charged: tuple[tuple[int, float], ...] = ()
    """The ids of options that are taken, with the cost in seconds, without launch, that the proof has for them."""
    proof: BoundProof | None = None
    """The proof for the smaller problem; None: the branch has no plan, or only that of the options it takes."""


def branches_seconds(problem: Problem, branches: Sequence[ProofBranch]) -> float:
    """The bound that all branches together prove, if :func:`why_no_branches` returns None for them."""
    return min((branch_seconds(problem, branch) for branch in branches), default=-inf)


def branch_seconds(problem: Problem, branch: ProofBranch) -> float:
    """The bound of the proof of one branch, or the cost of its only plan; infinite if it has no plan."""
    if branch.proof is None:
        settled = Between(problem).only_plan_seconds(branch.forks)
        return -inf if settled is None else settled
    seconds = {option.id: option.seconds for option in problem.options}
    caller = len(branch.proof.potentials)
    given_back = [term for id_, charged in branch.charged for term in (seconds[id_], -charged)]
    read = (amount for _, _, last, amount in branch.proof.readings if last == caller)
    return fsum([*branch.proof.potentials, *read, *given_back])


def why_no_branches(problem: Problem, branches: Sequence[ProofBranch]) -> str | None:
    """The first error in a proof by cases, or None."""
    ids = {option.id for option in problem.options}
    unknown = [id_ for branch in branches for id_, _ in (*branch.forks, *branch.charged) if id_ not in ids]
    if unknown:
        return f"a branch is about option {unknown[0]}, which does not exist"
    reason = _why_incomplete([branch.forks for branch in branches], 0)
    if reason is not None:
        return reason
    between = Between(problem)
    reasons = (_why_no_branch(between, branch) for branch in branches)
    return next((reason for reason in reasons if reason is not None), None)


def _why_incomplete(forks: Sequence[tuple[Fork, ...]], depth: int) -> str | None:
    """Why these branches, which agree up to ``depth``, leave out a plan, or None."""
    if len(forks) == 1 and len(forks[0]) == depth:
        return None
    if any(len(branch) <= depth for branch in forks) or len({branch[depth][0] for branch in forks}) != 1:
        return f"branches do not fork at one option after {depth} forks"
    for way in (0, 1):
        reason = _why_incomplete([branch for branch in forks if branch[depth][1] == way], depth + 1)
        if reason is not None:
            return reason
    taken = {branch[depth][1] for branch in forks}
    return None if taken == {0, 1} else f"branches do not fork at one option after {depth} forks"


def _why_no_branch(between: Between, branch: ProofBranch) -> str | None:
    taken = {id_ for id_, way in branch.forks if way}
    if not taken.issuperset(id_ for id_, _ in branch.charged) or not _is_once(branch.charged):
        return "a branch charges for options that it does not take"
    if not all(isfinite(seconds) for _, seconds in branch.charged):
        return "a branch charges what is not a finite number"
    if branch.proof is None:
        settled = between.only_plan_seconds(branch.forks)
        return "a branch has no proof, and may have several plans" if settled is None else None
    return why_no_proof(between.problem_of(branch.forks, dict(branch.charged)), branch.proof)


def _is_once(charged: Sequence[tuple[int, float]]) -> bool:
    return len(dict(charged)) == len(charged)


class Between:
    """Which options of a problem exclude each other."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._conditions = Conditions(problem)
        self._by_id = {option.id: option for option in problem.options}
        self._upstream: list[IndexSet] = []
        """For each node, itself and all nodes that it depends on."""
        for node, sources in enumerate(problem.sources):
            here = 1 << node
            for source in sources:
                here |= self._upstream[source]
            self._upstream.append(here)
        self._known: dict[int, tuple[IndexSet, IndexSet]] = {}

    def problem_of(self, forks: Sequence[Fork], charged: Mapping[int, float]) -> Problem:
        """The smaller problem of a branch, in which options that are taken cost what they are ``charged``."""
        out = {id_ for id_, way in forks if not way}
        taken = [self._by_id[id_] for id_, way in forks if way]
        kept = [
            replace(option, seconds=charged.get(option.id, option.seconds))
            for option in self._problem.options
            if option.id not in out
            and self._is_possible(option)
            and not any(self.excludes(option, other) for other in taken)
        ]
        return replace(self._problem, options=tuple(kept))

    def only_plan_seconds(self, forks: Sequence[Fork]) -> float | None:
        """The cost of the only plan of a branch; infinite if it has none, None if it may have several."""
        if self.has_no_plan(forks):
            return inf
        taken = {id_ for id_, way in forks if way}
        left = self.problem_of(forks, {}).options
        if any(option.id not in taken for option in left):
            return None
        return seconds_of_only(self._problem, left)

    def has_no_plan(self, forks: Sequence[Fork]) -> bool:
        """Whether the options that a branch takes are in no plan together."""
        out = {id_ for id_, way in forks if not way}
        taken = [self._by_id[id_] for id_ in dict.fromkeys(id_ for id_, way in forks if way)]
        if any(option.id in out or not self._is_possible(option) for option in taken):
            return True
        if any(self.excludes(one, other) for one in taken for other in taken):
            return True
        needs = {one.id: [other.id for other in taken if self._waits(one, other)] for one in taken}
        try:
            TopologicalSorter(needs).prepare()
        except CycleError:
            return True
        return False

    def _is_possible(self, option: Option) -> bool:
        """Whether an option can be in a plan. If no node is computed twice, no path may leave it and come back."""
        if not self._conditions.is_possible(option):
            return False
        if self._problem.redundant:
            return True
        sources = {source for node in members(option.inside) for source in self._problem.sources[node]}
        outside = (source for source in sources if not option.inside >> source & 1)
        return not any(self._upstream[source] & option.inside for source in outside)

    def excludes(self, one: Option, other: Option) -> bool:
        """Whether two options are in no plan together."""
        if one.id == other.id:
            return False
        pair = (one.backend, other.backend)
        if pair in self._problem.exclusions or pair[::-1] in self._problem.exclusions:
            return True
        shared = one.inside & other.inside
        if self._problem.redundant:
            shared = self._writes_and_needs(one)[0] & self._writes_and_needs(other)[0]
        return bool(shared) or (self._waits(one, other) and self._waits(other, one))

    def _waits(self, one: Option, other: Option) -> bool:
        """Whether ``one`` must run after ``other`` in every plan of both."""
        return one.id != other.id and bool(self._writes_and_needs(one)[1] & self._writes_and_needs(other)[0])

    def _writes_and_needs(self, option: Option) -> tuple[IndexSet, IndexSet]:
        """The nodes that ``option`` makes for others, and those that others must make before it runs.

        If no node is computed twice, that is all inside, and all that the inside depends on. Else it is what the option
        writes and reads, also through nodes that every plan leaves behind.
        """
        if option.id not in self._known:
            inside = list(members(option.inside))
            if self._problem.redundant:
                writes = sum(1 << node for node in self._conditions.writes(option))
                needs = {source for node in inside for source in self._problem.sources[node]}
                needs |= self._conditions.reads(option)
                mine = (writes, sum(1 << node for node in needs) & ~option.inside)
            else:
                upstream = 0
                for node in inside:
                    upstream |= self._upstream[node]
                mine = (option.inside, upstream)
            self._known[option.id] = mine
        return self._known[option.id]
