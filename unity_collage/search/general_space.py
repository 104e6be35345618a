"""States of problems with options that write several values, or with transitions between backends or devices.

An option is chosen when its largest output is made, so its other outputs, of smaller index, are then written ahead of
their layer. The state therefore has more than the wanted values (:mod:`.states`):

* the values that are written ahead, and those of them that nothing reads yet;
* the nodes inside chosen kernels, where two kernels could overlap;
* for each kernel with values written ahead, the values that must be made before it runs: kernels with several outputs
  may wait for each other in a cycle, which the order of outputs does not exclude;
* for each value with transitions, the sides (backends and devices) of its writer and those that read it, since a
  transition is charged once. So the state tells where each live value is.

Invariant: partial plans with equal states can be completed in the same ways at the same cost. All parts of a state are
reduced to the nodes up to the next layer, because later moves touch no others; that makes more states equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..index_set import EMPTY, IndexSet, members, size
from .problem import Problem
from .states import Move, State, Successor


class _OpenKernel(NamedTuple):
    """A kernel with outputs that are written ahead of their layer."""

    outputs: IndexSet
    """Its outputs below the layer."""
    needs: IndexSet
    """The values below the layer that must be made before it runs, directly or through other open kernels."""


class _Tag(NamedTuple):
    """The sides that write and read a value, as far as transitions depend on them; bit ``k`` is for side ``k``."""

    value: int
    writers: int
    """The sides of the option that wrote the value; 0 while it is wanted."""
    readers: int
    """The sides without those that no possible writer charges for."""


class _General(NamedTuple):
    wanted: IndexSet
    written: IndexSet
    """Values that are written ahead of their layer."""
    unread: IndexSet
    """Values that are written ahead and have no reader yet. A plan must not write values that are not wanted."""
    covered: IndexSet
    """Nodes inside chosen kernels, as far as a kernel with several outputs could overlap there."""
    open: tuple[_OpenKernel, ...]
    tags: tuple[_Tag, ...]


class GeneralSpace:
    """The state space of problems with options that write several values, or with transitions."""

    work = 10

    def __init__(self, problem: Problem, moves: list[list[Move]]):
        self._problem = problem
        self._moves = moves
        several = [move.inside for made in moves for move in made if size(move.outputs) > 1]
        self._overlappable = EMPTY
        for inside in several:
            self._overlappable |= inside
        if problem.redundant:
            self._overlappable = EMPTY
        self._names = tuple(dict.fromkeys(side for option in problem.options for side in option.sides))
        number = {name: position for position, name in enumerate(self._names)}
        self._sides = {o.id: sum(1 << number[side] for side in o.sides) for o in problem.options}
        self._known: dict[tuple[int, int, int], float] = {}
        """Earlier results of :meth:`_paid`."""
        self._charged_readers = self._paying_readers()
        self._tagged = any(self._charged_readers)

    def _paying_readers(self) -> list[int]:
        """For each value, the sides that may be charged for reading it. Other readers do not distinguish states."""
        found = [0] * len(self._moves)
        moves = [move for made in self._moves for move in made]
        for move in moves:
            if move.option is not None:
                writers = self._sides[move.option.id]
                for output in members(move.outputs):
                    for reader in range(len(self._names)):
                        found[output] |= (self._paid(writers, 1 << reader, output) > 0.0) << reader
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
                covered=state.covered | (move.inside & self._overlappable),
                waiting=waiting,
                tags=tags,
            )
            if following is not None:
                yield Successor(following.wanted.bit_length() - 1, following, move.seconds + paid, move)

    def _tags(self, tags: tuple[_Tag, ...], move: Move) -> tuple[tuple[_Tag, ...], float]:
        """The tags after ``move``, and the seconds of the transitions that it adds."""
        table = {tag.value: tag for tag in tags}
        paid = 0.0
        if move.option is None:
            passed_on = table.pop(move.top, _Tag(move.top, 0, 0)).readers
        else:
            writers = passed_on = self._sides[move.option.id]
            for value in members(move.outputs):
                tag = table.pop(value, _Tag(value, 0, 0))
                paid += self._paid(writers, tag.readers, value)
                if value != move.top and self._charged_readers[value]:
                    table[value] = _Tag(value, writers, tag.readers)
        for value in members(move.inputs):
            tag = table.get(value, _Tag(value, 0, 0))
            if tag.writers:
                paid += self._paid(tag.writers, passed_on & ~tag.readers, value)
            readers = tag.readers | (passed_on & self._charged_readers[value])
            if readers or tag.writers:
                table[value] = tag._replace(readers=readers)
        return tuple(sorted(table.values())), paid

    def _paid(self, writers: int, readers: int, value: int) -> float:
        """The seconds of the transitions of ``value`` from the sides that write it to those that read it."""
        if not readers:
            return 0.0
        known = self._known.get((writers, readers, value))
        if known is None:
            names = [self._names[side] for side in members(writers)]
            known = sum(self._problem.crossing(names, self._names[k], value) for k in members(readers))
            self._known[writers, readers, value] = known
        return known


def _opened(waiting: tuple[_OpenKernel, ...], move: Move) -> tuple[_OpenKernel, ...] | None:
    """The open kernels after ``move``, or None if one of them would have to wait for itself.

    A need that ``move`` makes is replaced by the inputs of ``move``. A need that another open kernel writes brings that
    kernel's needs with it: the loop computes this transitive closure. A kernel that needs its own output is a cycle.
    """
    below = move.outputs & ~(1 << move.top)
    if not waiting and not below:
        return ()
    kernels = [
        _OpenKernel(k.outputs, k.needs & ~move.outputs | move.inputs) if k.needs & move.outputs else k
        for k in waiting
    ]
    if below:
        kernels.append(_OpenKernel(below, move.inputs))
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
                kernels[position], changed = _OpenKernel(kernel.outputs, needs), True
    return tuple(kernels)


def _trimmed(
    wanted: IndexSet,
    written: IndexSet,
    unread: IndexSet,
    covered: IndexSet,
    waiting: tuple[_OpenKernel, ...],
    tags: tuple[_Tag, ...],
) -> _General | None:
    """The state reduced to the nodes up to the largest wanted value; None if an unread value is above it.

    Kernels that are chosen later read only smaller values, so such a value cannot get a reader.
    """
    below = (1 << wanted.bit_length()) - 1
    if unread & ~below:
        return None
    return _General(
        wanted,
        written & below,
        unread,
        covered & below,
        tuple(sorted(_OpenKernel(k.outputs & below, k.needs & below) for k in waiting if k.outputs & below)),
        tuple(tag for tag in tags if below >> tag.value & 1),
    )
