"""States of problems with options that write several values, or with transitions between backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..index_set import EMPTY, IndexSet, members, size
from .problem import Problem
from .states import Move, State, Successor


class _Open(NamedTuple):
    """A kernel that has written values whose turn has not come."""

    outputs: IndexSet
    needs: IndexSet
    """What must be made before it runs, as far as that is not settled."""


class _Tag(NamedTuple):
    """Who reads a value, for the transitions: bit ``k`` for backend ``k``. Those who pay for no writer are left out."""

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
        self._matters = self._paying_readers()
        self._tagged = any(self._matters)

    def _paying_readers(self) -> list[int]:
        """Of each value, the backends whose reading it may cost something: few, and the others make no states."""
        found = [0] * len(self._moves)
        moves = [move for made in self._moves for move in made]
        for move in moves:
            if move.option is not None:
                row = self._seconds[self._number[move.option.backend]]
                paying = sum(1 << reader for reader, seconds in enumerate(row) if seconds > 0.0)
                for output in members(move.outputs):
                    found[output] |= paying
        for move in moves:
            if move.option is None:  # its readers read its inputs
                for source in members(move.inputs):
                    found[move.top] |= found[source]
        return found

    def start(self) -> tuple[int, State]:
        wanted = self._problem.wanted
        return wanted.bit_length() - 1, _General(wanted, EMPTY, EMPTY, EMPTY, (), ())

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
            passed_on = table.pop(move.top, _Tag(move.top, -1, 0)).readers
        else:
            writer = self._number[move.option.backend]
            passed_on = 1 << writer
            for value in members(move.outputs):
                tag = table.pop(value, _Tag(value, -1, 0))
                paid += self._paid(writer, tag.readers)
                if value != move.top and self._matters[value]:
                    table[value] = _Tag(value, writer, tag.readers)
        for value in members(move.inputs):
            tag = table.get(value, _Tag(value, -1, 0))
            if tag.writer >= 0:
                paid += self._paid(tag.writer, passed_on & ~tag.readers)
            readers = tag.readers | (passed_on & self._matters[value])
            if readers or tag.writer >= 0:
                table[value] = tag._replace(readers=readers)
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
