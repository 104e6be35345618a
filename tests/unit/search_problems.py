"""Little search problems of all sorts, and their answers by brute force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from math import fsum

from hypothesis import strategies as st

from unity_collage.index_set import EMPTY, IndexSet, index_set, members
from unity_collage.search.problem import Option, Problem, Solution
from unity_collage.search.validity import why_not_valid

BACKENDS = ("one", "two")


@st.composite
def problems(
    draw: st.DrawFn,
    redundant: bool | None = None,
    single_exit: bool | None = None,
    most: int = 10,
    devices: bool | None = None,
) -> Problem:
    """DAGs of up to ``most`` nodes with as many options: ties, equal insides, two backends, transitions, launches, free
    nodes, options with several exits and with hidden nodes. A third of them is on up to three devices. Not all of them
    can be covered.
    """
    count = draw(st.integers(1, most))
    sources = tuple(
        tuple(sorted(draw(st.sets(st.integers(max(0, i - 4), i - 1), max_size=3)))) if i else ()
        for i in range(count)
    )
    twice = draw(st.booleans()) if redundant is None else redundant
    free = draw(_index_sets(count, chance=draw(st.sampled_from((0, 1, 3)))))
    results = draw(_index_sets(count, chance=1))
    frame = Problem(sources, free, (), results=results, redundant=twice)
    one_exit = draw(st.booleans()) if single_exit is None else single_exit
    options = [
        option
        for number in range(draw(st.integers(1, most)))
        if (option := _option(draw, frame, number, one_exit)) is not None
    ]
    if draw(st.integers(0, 9)) < 8:
        options = [*options[: most - _missing(frame, options).bit_count()], *_singles(frame, options)]
    if devices or (devices is None and draw(st.integers(0, 2)) == 0):
        return draw(_on_devices(Problem(sources, free, tuple(options), results=results, redundant=twice)))
    by_value = {("one", "two"): tuple(float(index % 3) for index in range(count)), ("two", "one"): 0.5}
    return Problem(
        sources,
        free,
        tuple(options),
        launch_seconds=draw(st.sampled_from((0.0, 1.0, 2.5))),
        results=results,
        transitions=draw(
            st.sampled_from(({}, {}, {("one", "two"): 1.0}, dict.fromkeys(_PAIRS, 0.75), by_value))
        ),
        redundant=twice,
    )


_PAIRS = (("one", "two"), ("two", "one"))
DEVICES = ("cpu:0", "gpu:0", "gpu:1")


@st.composite
def _on_devices(draw: st.DrawFn, problem: Problem) -> Problem:
    """The options on up to three devices, some of them on two at different costs, with copies by value or all alike."""
    options: list[Option] = []
    for option in problem.options:
        here, there = draw(st.permutations(DEVICES))[:2]
        options.append(replace(option, device=here))
        if len(problem.options) < 7 and draw(st.booleans()):
            seconds = max(0.0, option.seconds + draw(st.sampled_from((-1.0, 0.0, 2.0))))
            options.append(replace(option, id=option.id + 1000, seconds=seconds, device=there))
    costs = st.sampled_from((0.0, 0.5, 1.0, 4.0))
    copies: dict[tuple[str, str], float | tuple[float, ...]] = {}
    for pair in permutations(DEVICES, 2):
        by_value = st.lists(costs, min_size=len(problem), max_size=len(problem)).map(tuple)
        copies[pair] = draw(costs | by_value)
    backends = draw(st.sampled_from(({}, dict.fromkeys(_PAIRS, 0.75))))
    launch = draw(st.sampled_from((0.0, 1.0)))
    return replace(problem, options=tuple(options), launch_seconds=launch, transitions={**copies, **backends})


@st.composite
def excluding_problems(draw: st.DrawFn, redundant: bool | None = None, most: int = 8) -> Problem:
    """Problems with options of a third backend, in which some backends exclude each other."""
    problem = draw(problems(redundant=redundant, most=most))
    backends = st.sampled_from((*BACKENDS, "three"))
    options = tuple(replace(option, backend=draw(backends)) for option in problem.options)
    pairs = (("one", "two"), ("two", "three"), ("three", "one"))
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    return replace(problem, options=options, exclusions=tuple(chosen))


def _index_sets(count: int, chance: int) -> st.SearchStrategy[IndexSet]:
    """Sets that hold each node with a chance of about ``chance`` in eight."""
    draws = st.lists(st.integers(0, 7), min_size=count, max_size=count)
    return draws.map(lambda drawn: index_set(i for i, number in enumerate(drawn) if number < chance))


def _option(draw: st.DrawFn, frame: Problem, number: int, one_exit: bool) -> Option | None:
    """A connected piece grown from one node, convex but for what it hides; now and then just any set."""
    count = len(frame)
    if not one_exit and draw(st.integers(0, 5)) == 0:
        inside = draw(st.integers(1, (1 << count) - 1))
    else:
        inside = 1 << draw(st.integers(0, count - 1))
        for _ in range(draw(st.integers(0, 3))):
            beside = list(members(_neighbours(frame, inside)))
            if beside:
                inside |= 1 << draw(st.sampled_from(beside))
    last = 1 << (inside.bit_length() - 1)
    charge = float(draw(st.integers(0, 6)))
    backend = draw(st.sampled_from(BACKENDS))
    hidden = EMPTY
    if frame.redundant and (one_exit or draw(st.booleans())):
        hidden = frame.outputs(Option(0, inside, 0.0)) & ~last
    option = Option(number, inside, charge, hidden, backend)
    return option if not one_exit or frame.outputs(option) == last else None


def _neighbours(frame: Problem, inside: IndexSet) -> IndexSet:
    found = frame.inputs(inside)
    for index in members(inside):
        found |= frame.readers[index]
    return found & ~inside


def _missing(frame: Problem, options: Sequence[Option]) -> IndexSet:
    alone = index_set(option.inside.bit_length() - 1 for option in options if option.inside.bit_count() == 1)
    return frame.everything & ~alone & ~frame.free


def _singles(frame: Problem, options: Sequence[Option]) -> Iterator[Option]:
    """One option for each node that is in none alone, so that there is a plan."""
    for index in members(_missing(frame, options)):
        yield Option(100 + index, 1 << index, 3.0, EMPTY, BACKENDS[index % 2])


def cheapest(problem: Problem) -> float | None:
    """What the cheapest valid plan costs, among all subsets of options; None if no plan is valid."""
    return _Search(problem).run()


class _Search:
    """All subsets, without those that are too expensive, cover a node twice, or have missed one for good."""

    def __init__(self, problem: Problem):
        self._problem = problem
        self._best: float | None = None
        self._options = sorted(problem.options, key=lambda option: option.inside)
        self._to_come = [EMPTY]
        for option in reversed(self._options):
            self._to_come.insert(0, self._to_come[0] | option.inside)

    def run(self) -> float | None:
        self._choose(0, (), 0.0, EMPTY)
        return self._best

    def _choose(self, position: int, chosen: tuple[Option, ...], spent: float, covered: IndexSet) -> None:
        if self._best is not None and spent >= self._best:
            return
        if self._problem.everything & ~(self._problem.free | covered | self._to_come[position]):
            return
        if position == len(self._options):
            cost = cost_of(self._problem, chosen)
            if cost is not None and (self._best is None or cost < self._best):
                self._best = cost
            return
        option = self._options[position]
        if self._problem.redundant or not covered & option.inside:
            charge = option.seconds + self._problem.launch_seconds
            self._choose(position + 1, (*chosen, option), spent + charge, covered | option.inside)
        self._choose(position + 1, chosen, spent, covered)


def cost_of(problem: Problem, chosen: Sequence[Option]) -> float | None:
    """What exactly these options cost together as a plan, or None if they are not a plan."""
    made = EMPTY
    for option in chosen:
        made |= problem.outputs(option)
    if any(
        (one.backend, other.backend) in problem.exclusions
        or (other.backend, one.backend) in problem.exclusions
        for one, other in combinations(chosen, 2)
    ):
        return None
    left = _left_behind(problem, chosen, made)
    if left & ~problem.free:
        return None
    ordered = _ordered(problem, chosen, left)
    if ordered is None or why_not_valid(problem, ordered, tuple(members(left))) is not None:
        return None
    return fsum(problem.cost(option) for option in chosen) + _transitions(problem, chosen, left)


def _left_behind(problem: Problem, chosen: Sequence[Option], made: IndexSet) -> IndexSet:
    """What is wanted and not made by them: it depends on nothing else."""
    wanted = problem.wanted
    for option in chosen:
        wanted |= problem.inputs(option.inside)
    left = EMPTY
    for index in range(len(problem) - 1, -1, -1):
        if wanted >> index & 1 and not made >> index & 1:
            left |= 1 << index
            wanted |= problem.inputs(1 << index)
    return left


def _ordered(problem: Problem, chosen: Sequence[Option], left: IndexSet) -> list[Option] | None:
    there, waiting, ordered = EMPTY, list(chosen), list[Option]()
    while True:
        for index in members(left):
            if not problem.inputs(1 << index) & ~there:
                there |= 1 << index
        ready = [option for option in waiting if not problem.inputs(option.inside) & ~there]
        if not ready:
            return ordered if not waiting else None
        for option in ready:
            there |= problem.outputs(option)
        ordered += ready
        waiting = [option for option in waiting if option not in ready]


def _transitions(problem: Problem, chosen: Sequence[Option], left: IndexSet) -> float:
    """Value by value: which other backends and devices read it, directly or through nodes left behind."""
    paid = 0.0
    for writer in chosen:
        for index in members(problem.outputs(writer)):
            same = 1 << index
            for through in members(left):
                if problem.inputs(1 << through) & same:
                    same |= 1 << through
            reading = [option for option in chosen if problem.inputs(option.inside) & same]
            backends = {
                (writer.backend, option.backend) for option in reading if option.backend != writer.backend
            }
            devices = {(writer.device, option.device) for option in reading if option.device != writer.device}
            for pair in backends | devices:
                seconds = problem.transitions.get(pair, 0.0)
                paid += seconds[index] if isinstance(seconds, tuple) else seconds
    return paid


def ids(solution: Solution) -> list[int]:
    """The ids of the chosen options, in ascending order."""
    return sorted(option.id for option in solution.chosen)
