"""The state spaces that the exact search walks: sets of values that are still wanted.

A plan is built from the results upwards. A state holds the values that are wanted and not made yet; the one with the
largest index is made next, by an option whose largest output it is, or left behind. Its inputs are then wanted in turn.
What a state costs from here on depends on nothing else, so equal states merge, whatever led to them.

While every option writes one value the wanted set is the whole state (:class:`PlainSpace`): kernels in the order
of their outputs cannot wait for each other, and without hidden nodes no two that are both wanted overlap. Options that
write several values, and transitions, need more (:class:`GeneralSpace`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..index_set import EMPTY, IndexSet, members, size
from .plans import is_usable
from .problem import Option, Problem

DONE = -1
"""The layer of the state that wants nothing."""

State = Any
"""Opaque but to its space; hashable, and comparable for equality within one layer."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One way to make the values ``outputs``; ``option`` is None for a node that is left behind."""

    option: Option | None
    inside: IndexSet
    outputs: IndexSet
    inputs: IndexSet
    top: int
    """The largest output."""
    seconds: float
    potential: float
    """What the lower bound falls by: the potentials of the inside."""


class Successor(NamedTuple):
    """Where a move leads: the layer and the state in it, and what it costs with its transitions."""

    layer: int
    state: State
    seconds: float
    move: Move


class Space(Protocol):
    """The states of a problem, in layers by the value that is made next."""

    def start(self) -> tuple[int, State]:
        """Layer and state in which all results are wanted."""
        ...

    def successors(self, layer: int, state: State) -> Iterator[Successor]:
        """All moves from a state, in a fixed order."""
        ...


def space_of(problem: Problem, potentials: Sequence[float]) -> Space:
    """The smallest space that is right for ``problem``."""
    moves = _moves(problem, potentials)
    single = all(size(move.outputs) == 1 for made in moves for move in made)
    if single and not any(problem.transitions.values()):
        return PlainSpace(problem, moves)
    return GeneralSpace(problem, moves)


def cheapest_of_equals(problem: Problem) -> dict[int, Option]:
    """For each option that can be in a plan, the cheapest one with the same effect, by id."""
    tagged = any(problem.transitions.values())
    best: dict[tuple[IndexSet, IndexSet, str], Option] = {}
    usable = [option for option in sorted(problem.options, key=lambda o: o.id) if is_usable(problem, option)]

    def effect(option: Option) -> tuple[IndexSet, IndexSet, str]:
        return option.inside, problem.outputs(option), option.backend if tagged else ""

    for option in usable:
        known = best.get(effect(option))
        if known is None or problem.price(option) < problem.price(known):
            best[effect(option)] = option
    return {option.id: best[effect(option)] for option in usable}


def _moves(problem: Problem, potentials: Sequence[float]) -> list[list[Move]]:
    """The moves that make each value last of their outputs."""
    made: list[list[Move]] = [[] for _ in problem.sources]
    for option in dict.fromkeys(cheapest_of_equals(problem).values()):
        outputs = problem.outputs(option)
        made[outputs.bit_length() - 1].append(
            Move(
                option=option,
                inside=option.inside,
                outputs=outputs,
                inputs=problem.inputs(option.inside),
                top=outputs.bit_length() - 1,
                seconds=problem.price(option),
                potential=sum(potentials[index] for index in members(option.inside)),
            )
        )
    for index in members(problem.free):
        here = 1 << index
        made[index].append(Move(None, here, here, problem.inputs(here), index, 0.0, potentials[index]))
    return made


class PlainSpace:
    """States of problems whose options write one value each.

    A state is an int relative to its layer, bit ``k`` for node ``layer - k``: graphs are deep and narrow, so it has
    few bits however many nodes there are.
    """

    def __init__(self, problem: Problem, moves: list[list[Move]]):
        self._wanted = problem.wanted
        self._moves = [
            [(_relative(move.inputs, move.top), move.seconds, move) for move in made] for made in moves
        ]

    def start(self) -> tuple[int, State]:
        top = self._wanted.bit_length() - 1
        return top, _relative(self._wanted, top)

    def successors(self, layer: int, state: State) -> Iterator[Successor]:
        rest = state ^ 1
        for inputs, seconds, move in self._moves[layer]:
            wanted = rest | inputs
            if not wanted:
                yield Successor(DONE, 0, seconds, move)
                continue
            passed = (wanted & -wanted).bit_length() - 1
            yield Successor(layer - passed, wanted >> passed, seconds, move)


def _relative(indexes: IndexSet, top: int) -> int:
    result = 0
    for index in members(indexes):
        result |= 1 << (top - index)
    return result


class _Open(NamedTuple):
    """A kernel that has written values whose turn has not come."""

    outputs: IndexSet
    needs: IndexSet
    """What must be made before it runs, as far as that is not settled."""


class _Tag(NamedTuple):
    """Who reads a value, for the transitions: bit ``k`` for backend ``k``."""

    value: int
    writer: int
    """Number of the backend that wrote it; -1 while it is wanted."""
    readers: int


class _General(NamedTuple):
    wanted: IndexSet
    written: IndexSet
    """Below the layer, by kernels that write several values."""
    unread: IndexSet
    """Written, and not read by anybody yet."""
    covered: IndexSet
    """Inside some kernel already, as far as a kernel with several outputs could overlap there."""
    open: tuple[_Open, ...]
    tags: tuple[_Tag, ...]


class GeneralSpace:
    """States of problems with options that write several values, or with transitions."""

    def __init__(self, problem: Problem, moves: list[list[Move]]):
        self._problem = problem
        self._moves = moves
        several = [move.inside for made in moves for move in made if size(move.outputs) > 1]
        self._contested = EMPTY
        for inside in several:
            self._contested |= inside
        if problem.redundant:
            self._contested = EMPTY
        names = dict.fromkeys(option.backend for option in problem.options)
        self._number = {name: position for position, name in enumerate(names)}
        self._seconds = [[problem.transitions.get((a, b), 0.0) for b in names] for a in names]
        self._tagged = any(problem.transitions.values())

    def start(self) -> tuple[int, State]:
        wanted = self._problem.wanted
        tags = tuple(_Tag(i, -1, 0) for i in members(wanted)) if self._tagged else ()
        return wanted.bit_length() - 1, _General(wanted, EMPTY, EMPTY, EMPTY, (), tags)

    def successors(self, layer: int, state: State) -> Iterator[Successor]:
        for move in self._moves[layer]:
            if move.inside & state.covered or move.outputs & state.written:
                continue
            waiting = _opened(state.open, move)
            if waiting is None:
                continue
            tags, paid = self._tags(state.tags, move) if self._tagged else ((), 0.0)
            below = move.outputs & ~(1 << layer)
            following = _trimmed(
                wanted=state.wanted & ~move.outputs | move.inputs & ~state.written,
                written=state.written | below,
                unread=(state.unread & ~move.inputs) | (below & ~state.wanted),
                covered=state.covered | (move.inside & self._contested),
                waiting=waiting,
                tags=tags,
            )
            if following is not None:
                yield Successor(following.wanted.bit_length() - 1, following, move.seconds + paid, move)

    def _tags(self, tags: tuple[_Tag, ...], move: Move) -> tuple[tuple[_Tag, ...], float]:
        """Who reads what after ``move``, and what it pays for values that change hands."""
        table = {tag.value: tag for tag in tags}
        paid = 0.0
        if move.option is None:
            passed_on = table.pop(move.top).readers
        else:
            writer = self._number[move.option.backend]
            passed_on = 1 << writer
            for value in members(move.outputs):
                tag = table.pop(value, _Tag(value, -1, 0))
                paid += self._paid(writer, tag.readers)
                if value != move.top:
                    table[value] = _Tag(value, writer, tag.readers)
        for value in members(move.inputs):
            tag = table.get(value, _Tag(value, -1, 0))
            if tag.writer >= 0:
                paid += self._paid(tag.writer, passed_on & ~tag.readers)
            table[value] = tag._replace(readers=tag.readers | passed_on)
        return tuple(sorted(table.values())), paid

    def _paid(self, writer: int, readers: int) -> float:
        return sum(self._seconds[writer][reader] for reader in members(readers) if reader != writer)


def _opened(waiting: tuple[_Open, ...], move: Move) -> tuple[_Open, ...] | None:
    """The open kernels after ``move``, or None if one of them would have to wait for itself."""
    below = move.outputs & ~(1 << move.top)
    if not waiting and not below:
        return ()
    kernels = [
        _Open(k.outputs, k.needs & ~move.outputs | move.inputs) if k.needs & move.outputs else k
        for k in waiting
    ]
    if below:
        kernels.append(_Open(below, move.inputs))
    changed = True
    while changed:
        changed = False
        for position, kernel in enumerate(kernels):
            needs = kernel.needs
            for other in kernels:
                if needs & other.outputs:
                    needs |= other.needs
            if needs & kernel.outputs:
                return None
            if needs != kernel.needs:
                kernels[position], changed = _Open(kernel.outputs, needs), True
    return tuple(kernels)


def _trimmed(
    wanted: IndexSet,
    written: IndexSet,
    unread: IndexSet,
    covered: IndexSet,
    waiting: tuple[_Open, ...],
    tags: tuple[_Tag, ...],
) -> _General | None:
    """The state without what can no longer matter; None if a written value can no longer find a reader."""
    below = (1 << wanted.bit_length()) - 1
    if unread & ~below:
        return None
    return _General(
        wanted,
        written & below,
        unread,
        covered & below,
        tuple(sorted(_Open(k.outputs & below, k.needs & below) for k in waiting if k.outputs & below)),
        tuple(tag for tag in tags if below >> tag.value & 1),
    )
