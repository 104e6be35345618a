"""Lazy measurement: a proved cheapest plan without the cost of every candidate.

A cost that is not known is replaced by a lower bound. Plans then cost no more than they really do, so if a plan
that is cheapest under these costs contains only known ones, no plan is cheaper under the true costs: the search
is done. Else those that promise most are measured, which raises their costs to the true ones, and the search is
repeated. The scheme is that of lazy shortest paths (Dellin and Srinivasa, LazySP, 2016) with kernels for edges.

Of the unknown ones in a plan only the most expensive are measured in each round: as a rule they refute the plan alone, and
the small ones beside them need never be measured.

Option ids name candidates; *keys* name workloads, of which equal candidates share one. A key is measured once at most.

Collage's second version measured only candidates that lie in no larger one of their backend, because ``cost(A + B)
< cost(A) + cost(B)``. That is a guess: it fails for a kernel that is fused badly, and the best plan may give ``A``
to one backend and ``B`` to another. ``assume_fusion_pays`` makes it, and keeps the lower bound that holds without
it, so that the gap of the solution says what the guess may have cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..index_set import is_subset
from .exact import cheapest_cover
from .problem import NoCover, Option, Problem, Solution

Answer = float | str
"""Seconds, or the reason why there is no cost."""

Measure = Callable[[Sequence[str]], Mapping[str, Answer]]
"""The costs of these keys; of others too where they are known now, or known to stay unknown."""

_PART, _LEAST = 2, 8
"""One in so many unknown keys of a plan is measured in each round, and at least so many: smaller parts save a few
measurements more, and cost twice the rounds."""

_CAUTION = 0.8
"""A cost below its bound proves the machine faster than was thought, and there may be more such costs."""


@dataclass(frozen=True)
class LazySolution:
    """A plan, and what had to be known to prove it."""

    solution: Solution
    problem: Problem
    """The last one: the true costs where they are known, lower bounds elsewhere."""
    answers: Mapping[str, Answer]
    """What was measured, by key."""
    bounds: Mapping[str, float]
    """The lower bounds of the other keys."""
    rounds: int
    """How often a problem was solved."""
    failed: tuple[str, ...]
    """Keys whose cost turned out to be lower than their bound: all bounds were lowered after that."""


@dataclass
class LazySearch:
    """The search for one problem whose costs are not all known."""

    keys: Mapping[int, str]
    """The key of each candidate, by option id."""
    bounds: Mapping[str, float]
    """Seconds that each key costs at least; at least 0."""
    make: Callable[[Mapping[str, Answer]], Problem]
    """The problem for given costs of all keys. Keys without a cost are no options in it."""
    measure: Measure
    solve: Callable[[Problem], Solution] = cheapest_cover
    assume_fusion_pays: bool = False
    """Whether to measure nothing that lies in a larger measured candidate of its backend, unless nothing else is left."""
    _answers: dict[str, Answer] = field(default_factory=dict[str, Answer], init=False)
    _trust: float = field(default=1.0, init=False)
    _failed: list[str] = field(default_factory=list[str], init=False)
    _rounds: int = field(default=0, init=False)

    def run(self) -> LazySolution:
        """A plan as cheap as if all keys had been measured; raises NoCover if there is none."""
        while True:
            problem = self.make({**self._open(), **self._answers})
            try:
                solution = self._solved(self._considered(problem))
            except NoCover as error:
                wanted = self._that_could_help(problem, error)
            else:
                wanted = self._unknown(solution.chosen)
                if not wanted:
                    return self._finished(problem, solution)
            self._learn(wanted)

    def _solved(self, problem: Problem) -> Solution:
        self._rounds += 1
        return self.solve(problem)

    def _finished(self, problem: Problem, solution: Solution) -> LazySolution:
        if self.assume_fusion_pays:
            bound = self._solved(problem).lower_bound
            solution = replace(solution, lower_bound=min(bound, solution.lower_bound))
        return LazySolution(solution, problem, self._answers, self._open(), self._rounds, tuple(self._failed))

    def _open(self) -> dict[str, float]:
        """The bounds of what is not known."""
        return {key: bound * self._trust for key, bound in self.bounds.items() if key not in self._answers}

    def _unknown(self, options: Iterable[Option]) -> list[str]:
        """The keys of these options that are not known yet, each once."""
        keys = (self.keys[option.id] for option in options)
        return list(dict.fromkeys(key for key in keys if key not in self._answers))

    def _considered(self, problem: Problem) -> Problem:
        """The problem without the options that are assumed not to pay."""
        if not self.assume_fusion_pays:
            return problem
        known = [option for option in problem.options if self.keys[option.id] in self._answers]
        kept = tuple(
            option
            for option in problem.options
            if self.keys[option.id] in self._answers or not any(_within(option, larger) for larger in known)
        )
        return replace(problem, options=kept)

    def _that_could_help(self, problem: Problem, error: NoCover) -> list[str]:
        """Unknown candidates of the node that cannot be computed, or else all.

        They may be assumed not to pay, or turn out to have no answer: then their nodes may perhaps be left behind.
        """
        there = self._unknown(option for option in problem.options if option.inside >> error.index & 1)
        wanted = there or self._unknown(problem.options)
        if not wanted:
            raise error
        return wanted

    def _learn(self, wanted: Sequence[str]) -> None:
        """Measure the most expensive of ``wanted``; equally expensive ones in the order in which they come."""
        count = max(_LEAST, len(wanted) // _PART)
        expensive = sorted(wanted, key=lambda key: -self.bounds[key])[:count]
        found = self.measure(expensive)
        for key, answer in found.items():
            self._answers[key] = answer
            if not isinstance(answer, str) and answer < self.bounds[key] * self._trust:
                self._failed.append(key)
                self._trust = _CAUTION * answer / self.bounds[key]


def _within(option: Option, larger: Option) -> bool:
    same = option.backend == larger.backend
    return same and option.inside != larger.inside and is_subset(option.inside, larger.inside)
