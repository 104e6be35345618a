"""Lazy measurement: a proved cheapest plan without the cost of every candidate.

A cost that is not known is replaced by a lower bound, so every plan costs at most its true cost. If a cheapest plan
under these costs contains only known costs, no plan is cheaper under the true costs, and the search ends. Otherwise
some unknown costs of the plan are measured, and the search is repeated. This is the scheme of lazy shortest paths
(Dellin and Srinivasa, LazySP, 2016), with kernels as edges.

In each round only a part of a plan's unknown kernels is measured, since the time may be over before the end. First
come those that may gain most on the best plan of known kernels, or make a node that no known kernel makes. Usually
these alone show that the plan is not the cheapest, and the others need not be measured at all.

Option ids name candidates. *Keys* name workloads; equal candidates share a key. A key is measured at most once.

The second version of Collage measured only candidates that are in no larger candidate of their backend, because
``cost(A + B) < cost(A) + cost(B)``. That is a heuristic: it fails for a badly fused kernel, and the best plan may give
``A`` to one backend and ``B`` to another. ``assume_fusion_pays`` uses it. The lower bound is still the one that holds
without it, so the gap of the solution shows how much it may have cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from ..index_set import EMPTY, first_n, is_subset
from .auto import quick
from .problem import NoCover, Option, Problem, Solution

Answer = float | str
"""Seconds, or the reason why there is no cost."""

Expect = Callable[[Mapping[str, Answer]], Mapping[str, float]]
"""The expected seconds of keys, given the answers that are known."""

Measure = Callable[[Sequence[str]], Mapping[str, Answer]]
"""Measures these keys. The answers may include other keys, if their costs, or the reasons for none, became known."""

_PART, _LEAST = 2, 8
"""In each round one in ``_PART`` unknown keys of a plan is measured, and at least ``_LEAST``. Measuring fewer saves a
few more measurements, but takes twice as many rounds."""

_UNEXPECTED = "nothing is expected of it"
"""Why a key has no option in the problem of the expected plan."""

_CAUTION = 0.8
"""After a cost below its bound, all bounds are scaled to this part of the cost: the machine is faster than assumed, and
other bounds may be too high as well. Scaled bounds are guesses, so they prove nothing."""


@dataclass(frozen=True)
class LazySolution:
    """A plan, and the costs that were needed to prove it."""

    solution: Solution
    problem: Problem
    """The last problem: with true costs where they are known, lower bounds elsewhere."""
    answers: Mapping[str, Answer]
    """The measured costs and refusals, by key."""
    bounds: Mapping[str, float]
    """The lower bounds of the other keys."""
    rounds: int
    """How many problems were solved."""
    failed: tuple[str, ...]
    """Keys whose cost was lower than their bound; all bounds were lowered after that. Then nothing is proved."""


@dataclass
class LazySearch:
    """The search for a problem in which not all costs are known."""

    keys: Mapping[int, str]
    """The key of each candidate, by option id; an option that certainly costs nothing has none."""
    bounds: Mapping[str, float]
    """A lower bound in seconds for each key, not negative."""
    make: Callable[[Mapping[str, Answer]], Problem]
    """Makes the problem for given answers of all keys. Keys without a cost have no options in it."""
    measure: Measure
    solve: Callable[[Problem], Solution] = quick
    assume_fusion_pays: bool = False
    """Whether to skip candidates inside a larger measured candidate of their backend, unless nothing else is left."""
    known: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    """Answers that need no measurement."""
    enough: float = math.inf
    """Seconds: the search ends once no plan costs less by the lower bounds, whether or not all of its plan is measured.
    This holds as long as no kernel is refused: a node without a kernel is left behind and costs nothing."""
    expected: Expect = lambda _answers: {}
    """The expected seconds of some keys, from the answers that are known.

    If something has to be measured, the cheapest plan by these comes first, its most expensive kernels before the
    others. When the cheapest expected plan is measured, the search begins: its result does not depend on them.
    """
    rest: Measure = lambda _keys: {}
    """Answers for some of the keys that are open when the plan is found. The search did not use them, since they would
    have been measured again if the plan depended on them. They take part in its last steps.
    """
    _answers: dict[str, Answer] = field(default_factory=dict[str, Answer], init=False)
    _trust: float = field(default=1.0, init=False)
    _failed: list[str] = field(default_factory=list[str], init=False)
    _rounds: int = field(default=0, init=False)
    _has_rest: bool = field(default=False, init=False)

    def run(self) -> LazySolution:
        """The plan that would be the cheapest if all keys had been measured; raises NoCover if there is none."""
        self._take(self.known)
        is_begun = False
        while True:
            problem = self.make({**self._open(), **self._answers})
            try:
                solution = self._solved(self._considered(problem))
            except NoCover as error:
                solution, wanted = None, self._that_could_help(problem, error)
            else:
                wanted = self._unknown(solution.chosen)
                if not wanted or solution.lower_bound >= self.enough:
                    if self._takes_rest():
                        continue
                    return self._finished(problem, solution)
            if not is_begun:  # only now: where all that is needed is known, nothing is measured
                is_begun = True
                self._measure_expected()
                continue
            self._learn(wanted, {} if solution is None else self._gains(problem, solution))

    def _measure_expected(self) -> None:
        """Measure the cheapest plan of known and expected costs, until all of its costs are known."""
        unexpected = dict.fromkeys(self.bounds, _UNEXPECTED)
        while (expected := self.expected(self._answers)).keys() - self._answers.keys():
            problem = self.make({**unexpected, **expected, **self._answers})
            try:
                wanted = self._unknown(self._solved(self._considered(problem)).chosen)
            except NoCover:
                return
            if not wanted:
                return
            self._learn(wanted, expected)

    def _takes_rest(self) -> bool:
        """Take the answers of ``rest``, once; whether there are some."""
        if self._has_rest:
            return False
        self._has_rest = True
        found = self.rest(list(self._open()))
        self._take(found)
        return bool(found)

    def _solved(self, problem: Problem) -> Solution:
        self._rounds += 1
        return self.solve(problem)

    def _finished(self, problem: Problem, solution: Solution) -> LazySolution:
        if self.assume_fusion_pays:
            bound = self._solved(problem).lower_bound
            solution = replace(solution, lower_bound=min(bound, solution.lower_bound))
        return LazySolution(solution, problem, self._answers, self._open(), self._rounds, tuple(self._failed))

    def _open(self) -> dict[str, float]:
        """The lower bounds of the keys that are not known."""
        return {key: bound * self._trust for key, bound in self.bounds.items() if key not in self._answers}

    def _unknown(self, options: Iterable[Option]) -> list[str]:
        """The unknown keys of these options, each once."""
        keys = (self.keys[option.id] for option in options if not self._is_known(option))
        return list(dict.fromkeys(keys))

    def _is_known(self, option: Option) -> bool:
        """Whether an option needs no measurement; an option without a key, such as a view, never does."""
        key = self.keys.get(option.id)
        return key is None or key in self._answers

    def _considered(self, problem: Problem) -> Problem:
        """The problem without the options that ``assume_fusion_pays`` skips."""
        if not self.assume_fusion_pays:
            return problem
        known = [option for option in problem.options if self._is_known(option)]
        kept = tuple(
            option
            for option in problem.options
            if self._is_known(option) or not any(_within(option, larger) for larger in known)
        )
        return replace(problem, options=kept)

    def _that_could_help(self, problem: Problem, error: NoCover) -> list[str]:
        """The unknown keys of options for the node that cannot be computed, or else all unknown keys.

        Those options may have been skipped, or their cost may be a refusal, after which their nodes may be left behind.
        """
        there = self._unknown(option for option in problem.options if option.inside >> error.index & 1)
        wanted = there or self._unknown(problem.options)
        if not wanted:
            raise error
        return wanted

    def _gains(self, problem: Problem, solution: Solution) -> dict[str, float]:
        """The possible gain of each unknown key of a solution: the cost of the known kernels that it would replace,
        less its own bound.

        Infinite if it makes a node that no known kernel makes; 0 if the known kernels do not form a plan of the rest.
        """
        known = tuple(option for option in problem.options if self._is_known(option))
        made = reduce(int.__or__, (option.inside for option in known), EMPTY)
        missing = first_n(len(problem)) & ~made
        try:
            best = self._solved(replace(problem, options=known, free=problem.free | missing)).chosen
        except NoCover:
            best = ()
        gains: dict[str, float] = {}
        for option in solution.chosen:
            if not self._is_known(option):
                key = self.keys[option.id]
                replaced = sum(other.seconds for other in best if other.inside & option.inside)
                gain = math.inf if option.inside & missing else replaced - self.bounds[key]
                gains[key] = max(gains.get(key, 0.0), gain)
        return gains

    def _learn(self, wanted: Sequence[str], gains: Mapping[str, float]) -> None:
        """Measure the part of ``wanted`` with the greatest ``gains``, or else the most expensive by their bounds."""
        count = max(_LEAST, len(wanted) // _PART)
        expensive = sorted(wanted, key=lambda key: (-gains.get(key, 0.0), -self.bounds[key]))[:count]
        self._take(self.measure(expensive))

    def _take(self, found: Mapping[str, Answer]) -> None:
        """Keep these answers; if one is below its bound, lower all bounds.

        The answer that is lowest by its bound decides, whichever comes first: the next search knows all at once.
        """
        for key, answer in found.items():
            self._answers[key] = answer
            if not isinstance(answer, str) and answer < self.bounds[key]:
                self._failed.append(key)
                self._trust = min(self._trust, _CAUTION * answer / self.bounds[key])


def _within(option: Option, larger: Option) -> bool:
    same = option.sides == larger.sides
    return same and option.inside != larger.inside and is_subset(option.inside, larger.inside)
