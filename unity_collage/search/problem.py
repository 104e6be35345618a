"""The partitioning problem and its solution as plain data, independent of TVM.

Nodes are post-dfs indexes ``0 .. n-1``: a node reads only nodes of smaller index. Index sets are ints, bit ``i`` for
node ``i``.

A *plan* is a set of options and a set of nodes that are left behind. A value is *wanted* if the caller, a chosen option
or a node left behind reads it. A plan is valid if

* every wanted value is written by exactly one chosen option or is left behind,
* no value is written that is not wanted,
* its kernels can be put in an order,
* no two of its options are of backends that exclude each other, and
* no node is inside two kernels and no option hides a node, unless the problem allows redundant computation.

An option that does not write its last node computes that node for nothing, and is in no valid plan.

The cost of a plan is the sum of the costs and launches of its options and of its transitions. A transition is charged
once for each value and each *other* backend that reads it, and once for each *other* device: that is a copy, which
serves all readers there. It is made from the device of the kernel that writes the value. A node left behind (a view, a
tuple) is transparent: its readers read its sources.

Backends and devices are both *sides* of an option, and transitions are between two sides of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..index_set import EMPTY, IndexSet, first_n, members


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate: the nodes ``inside`` as one kernel. It was measured unless it ``is_open``."""

    id: int
    inside: IndexSet
    seconds: float
    """The cost of one run, without the launch."""
    hidden: IndexSet = EMPTY
    """Inside nodes that are read outside too, but that this kernel does not write."""
    backend: str = ""
    """The backend of the kernel, which launches and transitions depend on."""
    low: float | None = None
    """The lower end of the measured interval of the cost; if None, it is ``seconds``."""
    high: float | None = None
    """The upper end."""
    device: str = ""
    """The device of the kernel and of the values that it reads and writes; empty: there is one device."""
    least: float | None = None
    """A lower bound of the cost if ``seconds`` are a guess: proofs count with it. None: ``seconds`` are not a guess."""
    is_open: bool = False
    """Whether ``seconds`` are only a lower bound, since the kernel was not measured: no plan may choose it."""

    @property
    def sides(self) -> tuple[str, ...]:
        """The names by which it writes and reads values: its backend, and its device if it has one."""
        return (self.backend, self.device) if self.device else (self.backend,)

    @property
    def interval(self) -> tuple[float, float]:
        """The measured interval of the cost, extended so that it contains ``seconds``."""
        low = self.seconds if self.low is None else self.low
        high = self.seconds if self.high is None else self.high
        return min(low, self.seconds), max(high, self.seconds)


@dataclass(frozen=True, slots=True)
class Swap:
    """A tie in which the policy has preferred another option than the cheapest plan (:mod:`.ties`)."""

    taken: int
    """The id of the option in the plan."""
    instead: tuple[int, ...]
    """The ids of the options of the cheapest plan that it replaces."""


Transition = float | tuple[float, ...]
"""Seconds for each value, or seconds by value for each node."""


@dataclass(frozen=True)
class Problem:
    """A partitioning problem: which options should compute the graph."""

    sources: tuple[tuple[int, ...], ...]
    """For each node, the nodes that it reads."""
    free: IndexSet
    """Nodes that may be left behind at no cost."""
    options: tuple[Option, ...]
    launch_seconds: float = 0.0
    """Charged once for every chosen option with a backend that is not in ``launches``."""
    results: IndexSet = EMPTY
    """The values that the caller reads. Values that no node reads are wanted in any case."""
    transitions: Mapping[tuple[str, str], Transition] = field(
        default_factory=dict[tuple[str, str], "Transition"]
    )
    """Seconds, at least 0, for a value that one backend or device writes and another reads: ``(writer, reader)``. No
    device is called like a backend."""
    launches: Mapping[str, float] = field(default_factory=dict[str, float])
    """Charged once for every chosen option of a backend, in place of ``launch_seconds``."""
    exclusions: tuple[tuple[str, str], ...] = ()
    """Pairs of backends that cannot be in one plan."""
    redundant: bool = False
    """Whether several kernels may compute the same node."""
    drift: float = 0.0
    """The relative error, besides their intervals, between costs of options with different nodes. Options with the same
    nodes are measured in turns, others at different times."""

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def readers(self) -> tuple[IndexSet, ...]:
        """For each node, the nodes that read it."""
        found = [EMPTY] * len(self)
        for index, sources in enumerate(self.sources):
            for source in sources:
                found[source] |= 1 << index
        return tuple(found)

    @cached_property
    def wanted(self) -> IndexSet:
        """The values that the plan must make: the results, and the values that no node reads."""
        unread = EMPTY
        for index, readers in enumerate(self.readers):
            if not readers:
                unread |= 1 << index
        return self.results | unread

    @cached_property
    def upstream(self) -> tuple[IndexSet, ...]:
        """For each node, itself and all nodes that it depends on."""
        reach: list[IndexSet] = []
        for index, sources in enumerate(self.sources):
            here = 1 << index
            for source in sources:
                here |= reach[source]
            reach.append(here)
        return tuple(reach)

    @cached_property
    def everything(self) -> IndexSet:
        return first_n(len(self))

    def inputs(self, inside: IndexSet) -> IndexSet:
        """The outside nodes that ``inside`` reads."""
        found = EMPTY
        for index in members(inside):
            for source in self.sources[index]:
                found |= 1 << source
        return found & ~inside

    def outputs(self, option: Option) -> IndexSet:
        """The nodes whose values the kernel writes: those that are read outside, without the hidden ones."""
        found = EMPTY
        for index in members(option.inside & ~option.hidden):
            if self.readers[index] & ~option.inside or self.wanted >> index & 1:
                found |= 1 << index
        return found

    def cost(self, option: Option) -> float:
        """The seconds of one run, launch included."""
        return option.seconds + self.launch(option)

    def launch(self, option: Option) -> float:
        """The seconds that calling the kernel costs."""
        return self.launches.get(option.backend, self.launch_seconds)

    def transition(self, writer: str, reader: str, value: int) -> float:
        """The seconds that node ``value`` costs if one backend or device writes it and another reads it."""
        if writer == reader:
            return 0.0
        seconds = self.transitions.get((writer, reader), 0.0)
        return seconds[value] if isinstance(seconds, tuple) else seconds

    def crossing(self, writers: Sequence[str], reader: str, value: int) -> float:
        """The seconds that node ``value`` costs if an option with the sides ``writers`` writes it."""
        return sum(self.transition(writer, reader, value) for writer in writers)

    @cached_property
    def charged_sides(self) -> frozenset[str]:
        """The backends and devices with a transition that costs something."""
        return frozenset(
            side
            for pair, seconds in self.transitions.items()
            if (any(seconds) if isinstance(seconds, tuple) else seconds)
            for side in pair
        )

    @property
    def has_transitions(self) -> bool:
        """Whether any transition costs something."""
        return bool(self.charged_sides)


@dataclass(frozen=True)
class Solution:
    """A plan and its bounds."""

    chosen: tuple[Option, ...]
    """In an order in which they can run."""
    left_behind: IndexSet
    seconds: float
    """Costs, launches and transitions together."""
    lower_bound: float
    """No valid plan is cheaper than this."""
    algorithm: str
    """The search that found it: ``exact``, ``milp``, ``greedy``, ..."""
    visited: int = 0
    """How many states or nodes the search visited."""
    tie_seconds: float = 0.0
    """How many seconds more it costs than the cheapest plan that was found; that is within the noise of the costs."""
    swaps: tuple[Swap, ...] = ()
    """The options that it has in place of options of the cheapest plan."""

    @property
    def gap(self) -> float:
        """The relative difference to the lower bound, without the seconds of ties."""
        more = self.seconds - self.tie_seconds - self.lower_bound
        return max(0.0, more) / self.seconds if self.seconds else 0.0

    @property
    def is_closed(self) -> bool:
        """Whether the search claims that no valid plan is cheaper, up to rounding and ties."""
        return self.gap <= 1e-9


class NoCover(Exception):
    """No valid plan exists; ``index`` names a node that cannot be computed."""

    def __init__(self, index: int):
        super().__init__(f"node {index} is in no candidate that fits, and must not be left behind")
        self.index = index
