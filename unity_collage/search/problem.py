"""The partitioning problem and its solution as plain data.

Nodes are post-dfs indexes ``0 .. n-1``: a node reads only smaller ones. Index sets are ints, bit ``i`` for
node ``i``. Nothing here knows of TVM.

A *plan* is a set of options and of nodes that are left behind. It is valid if every value that is wanted (by the
caller, by a chosen option, by a node left behind) is written by exactly one chosen option or left behind, if nothing is
written that nobody wants, and if its kernels can be put in an order. Unless the problem allows redundant computation,
no node is inside two kernels and no option hides anything. An option that does not write its last node computes
it for nothing, and is in no valid plan.

A plan costs the cost and the launch of each chosen option, and for each value and each *other* backend that
reads it, once, the transition. A node left behind (a view, a tuple) is transparent: who reads it reads its sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..index_set import EMPTY, IndexSet, first_n, members


@dataclass(frozen=True, slots=True)
class Option:
    """A measured candidate: these nodes as one kernel."""

    id: int
    inside: IndexSet
    seconds: float
    """Cost of one run, without the launch."""
    hidden: IndexSet = EMPTY
    """Inside nodes that are read outside too, but that this kernel does not write."""
    backend: str = ""
    """Whose kernel it is: what transitions go by."""
    low: float | None = None
    """Where the true cost begins, as far as measuring tells; None: at ``seconds``."""
    high: float | None = None
    """Where it ends."""

    @property
    def interval(self) -> tuple[float, float]:
        """In which the true cost lies; it holds ``seconds``."""
        low = self.seconds if self.low is None else self.low
        high = self.seconds if self.high is None else self.high
        return min(low, self.seconds), max(high, self.seconds)


@dataclass(frozen=True, slots=True)
class Swap:
    """A tie that the policy has settled against the estimates (:mod:`.ties`)."""

    taken: int
    """Id of the option in the plan."""
    instead: tuple[int, ...]
    """Ids of those that the cheapest plan has in its place."""


@dataclass(frozen=True)
class Problem:
    """Which kernels shall compute the graph?"""

    sources: tuple[tuple[int, ...], ...]
    """For each node, the nodes that it reads."""
    free: IndexSet
    """Nodes that may be left behind at no cost."""
    options: tuple[Option, ...]
    launch_seconds: float = 0.0
    """Charged once for every chosen option, where ``launches`` does not say it."""
    results: IndexSet = EMPTY
    """The values that the caller gets; those that no node reads are wanted in any case."""
    transitions: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """Seconds, at least 0, for a value that one backend wrote and another reads: ``(writer, reader)``."""
    launches: Mapping[str, float] = field(default_factory=dict[str, float])
    """Charged once for every chosen option of a backend, in place of ``launch_seconds``."""
    redundant: bool = False
    """Whether a node may be computed by more than one kernel."""
    drift: float = 0.0
    """By what share costs of options with different nodes may be off against each other, besides their intervals:
    options with the same nodes are measured in turns, others at another time."""

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
        """The values that must be there in the end."""
        unread = EMPTY
        for index, readers in enumerate(self.readers):
            if not readers:
                unread |= 1 << index
        return self.results | unread

    @cached_property
    def upstream(self) -> tuple[IndexSet, ...]:
        """For each node, itself and all nodes it depends on."""
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
        """The nodes whose values the kernel writes: those read outside, without the hidden ones."""
        found = EMPTY
        for index in members(option.inside & ~option.hidden):
            if self.readers[index] & ~option.inside or self.wanted >> index & 1:
                found |= 1 << index
        return found

    def cost(self, option: Option) -> float:
        """Seconds of one run, launch included."""
        return option.seconds + self.launch(option)

    def launch(self, option: Option) -> float:
        """Seconds that calling the kernel costs."""
        return self.launches.get(option.backend, self.launch_seconds)


@dataclass(frozen=True)
class Solution:
    """A plan and what is known of it."""

    chosen: tuple[Option, ...]
    """In an order in which they can run."""
    left_behind: IndexSet
    seconds: float
    """Costs, launches and transitions together."""
    lower_bound: float
    """No valid plan is cheaper than this."""
    algorithm: str
    """What found it: ``exact``, ``milp``, ``greedy``, ..."""
    visited: int = 0
    """How many states or nodes the search has looked at."""
    tie_seconds: float = 0.0
    """By so much it is more expensive than the cheapest plan that was found, all of it within the noise of the costs."""
    swaps: tuple[Swap, ...] = ()
    """What it has in place of that plan's kernels."""

    @property
    def gap(self) -> float:
        """How much more expensive than the lower bound it is at most, ties aside, as a part of the cost."""
        more = self.seconds - self.tie_seconds - self.lower_bound
        return max(0.0, more) / self.seconds if self.seconds else 0.0

    @property
    def proved(self) -> bool:
        """Whether no valid plan is cheaper, up to rounding and ties."""
        return self.gap <= 1e-9


class NoCover(Exception):
    """No valid plan exists; ``index`` names a node that cannot be computed."""

    def __init__(self, index: int):
        super().__init__(f"node {index} is in no candidate that fits, and cannot be left behind")
        self.index = index
