"""Synthetic search problems of known shape and any size, equal for equal seeds.

Every node can be a kernel of two backends; so can pieces with one exit that grow upwards from it. Branchy families also
offer pairs of parallel branches as one kernel with two exits. A fused kernel saves a part of what its nodes cost alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from random import Random

from unity_collage.index_set import index_set
from unity_collage.search.problem import Option, Problem

Sources = list[tuple[int, ...]]

MOST_NODES = 6
"""In one option."""


def chain(count: int, _random: Random) -> Sources:
    """One after the other."""
    return [(index - 1,) if index else () for index in range(count)]


def ladder(count: int, _random: Random) -> Sources:
    """Two rails; every third rung reads across."""
    return [
        () if index < 2 else (index - 2, index - 1) if index % 3 == 0 else (index - 2,)
        for index in range(count)
    ]


def inception(count: int, _random: Random) -> Sources:
    """Modules of four branches of one to three operators, joined."""
    sources: Sources = [()]
    while len(sources) < count:
        entry, ends = len(sources) - 1, list[int]()
        for length in (1, 2, 3, 2):
            sources.append((entry,))
            for _ in range(length - 1):
                sources.append((len(sources) - 1,))
            ends.append(len(sources) - 1)
        sources.append(tuple(ends))
    return sources[:count]


def nasnet(count: int, random: Random) -> Sources:
    """Cells of five blocks, each the sum of two branches that read the two cells before or a block."""
    sources: Sources = [(), (0,)]
    before, last = 0, 1
    while len(sources) < count:
        outputs = [before, last]
        for _ in range(5):
            branches: list[int] = []
            for _ in range(2):
                sources.append((random.choice(outputs),))
                sources.append((len(sources) - 1,))
                branches.append(len(sources) - 1)
            sources.append(tuple(branches))
            outputs.append(len(sources) - 1)
        sources.append(tuple(outputs[2:]))
        before, last = last, len(sources) - 1
    return sources[:count]


def transformer(count: int, _random: Random) -> Sources:
    """Blocks of a norm, three projections, attention, and a two-layer part, with two residual sums."""
    sources: Sources = [()]
    while len(sources) < count:
        x = len(sources) - 1
        norm = x + 1
        q, k, v, scores, soft, mixed, out, add, norm2, up, act, down = range(norm + 1, norm + 13)
        sources += [(x,), (norm,), (norm,), (norm,), (q, k), (scores,), (soft, v), (mixed,), (x, out)]
        sources += [(add,), (norm2,), (up,), (act,), (add, down)]
        assert sources[add] == (x, out) and sources[down] == (act,)
    return sources[:count]


def random_of_width(width: int) -> Callable[[int, Random], Sources]:
    """At most ``width`` values that are still to be read, at any time."""

    def made(count: int, random: Random) -> Sources:
        live, sources = list(range(width)), Sources([()] * width)
        for index in range(width, count):
            slot = random.randrange(width)
            also = {random.choice(live)} if random.random() < 0.5 else set[int]()
            sources.append(tuple(sorted({live[slot]} | also)))
            live[slot] = index
        return sources[:count]

    return made


FAMILIES: dict[str, Callable[[int, Random], Sources]] = {
    "chain": chain,
    "ladder": ladder,
    "inception": inception,
    "nasnet": nasnet,
    "transformer": transformer,
    **{f"width {width}": random_of_width(width) for width in (2, 4, 8, 16)},
}


def problem(family: str, count: int, options_per_node: int = 10, seed: int = 0) -> Problem:
    """A graph of ``family`` with ``count`` nodes and about ``options`` options for each node."""
    random = Random(f"{family}/{count}/{options_per_node}/{seed}")
    sources = FAMILIES[family](count, random)
    readers: list[list[int]] = [[] for _ in sources]
    for index, read in enumerate(sources):
        for source in read:
            readers[source].append(index)
    alone = [random.uniform(1.0, 20.0) for _ in sources]
    options: list[Option] = []
    for last in range(count):
        for inside in _pieces(sources, readers, last, options_per_node // 2):
            saving = 1.0 - 0.06 * (len(inside) - 1)
            for backend in ("one", "two"):
                cost = sum(alone[index] for index in inside) * saving * random.uniform(0.7, 1.3)
                options.append(Option(len(options), index_set(inside), cost * 1e-6, backend=backend))
        options += _pair(sources, readers, alone, last, random, len(options))
    return Problem(tuple(sources), 0, tuple(options), launch_seconds=0.5e-6)


def _pieces(sources: Sources, readers: list[list[int]], last: int, most: int) -> Iterator[tuple[int, ...]]:
    """Sets with the one exit ``last``, small ones first: a source joins once all its readers are inside."""
    found: list[tuple[int, ...]] = [(last,)]
    for piece in found:
        yield piece
        if len(piece) == MOST_NODES:
            continue
        for member in piece:
            for source in sources[member]:
                grown = tuple(sorted({*piece, source}))
                inside = all(reader in piece for reader in readers[source])
                if inside and grown not in found and len(found) < most:
                    found.append(grown)


def _pair(
    sources: Sources, readers: list[list[int]], alone: list[float], last: int, random: Random, number: int
) -> list[Option]:
    """``last`` and the node before it as one kernel, where both only read the same one value."""
    twins = last > 0 and sources[last] == sources[last - 1] and len(sources[last]) == 1
    if not twins or len(readers[sources[last][0]]) < 3:
        return []
    cost = (alone[last] + alone[last - 1]) * random.uniform(0.6, 1.2)
    return [Option(number, index_set((last - 1, last)), cost * 1e-6, backend="one")]


def on_devices(problem: Problem, count: int, seed: int = 0) -> Problem:
    """The options of ``problem`` on each of ``count`` devices, at other costs, with a copy between them by value.

    A copy costs about as much as a kernel, so that it is not obvious where each kernel should run.
    """
    random = Random(seed)
    devices = [f"device:{number}" for number in range(count)]
    options = [
        replace(
            option,
            id=count * option.id + number,
            seconds=option.seconds * random.uniform(0.5, 1.5),
            device=name,
        )
        for option in problem.options
        for number, name in enumerate(devices)
    ]
    typical = sum(option.seconds for option in problem.options) / len(problem.options)
    copies = {
        pair: tuple(typical * random.uniform(0.2, 1.0) for _ in range(len(problem)))
        for pair in permutations(devices, 2)
    }
    return replace(problem, options=tuple(options), transitions={**problem.transitions, **copies})
