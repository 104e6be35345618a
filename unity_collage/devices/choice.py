"""The choice of devices for one dataflow block as a search problem: kernels and devices are chosen together.

Each kernel is an option on each device that its values may be on. Values from outside the block have fixed places,
and so have values that are read outside: copies of them cost as much as all others. An operator without a measured
kernel runs where it is planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tvm import ir, relax

from ..graph import DataflowGraph
from ..graph.dataflow import Node, used_vars
from ..graph.shapes import nbytes_of
from ..index_set import EMPTY, IndexSet, first_n, index_set, members
from ..plan.candidate import Candidate
from ..plan.costs import Costs, at_size
from ..search.ends import END, ProblemWithEnds, with_ends
from ..search.problem import Option, Problem, Transition
from .freedom import Freedom
from .reading import COPY
from .trees import tensors


@dataclass(frozen=True)
class FreeBlock:
    """One dataflow block of a planned function; its nodes have numbers from 0."""

    graph: DataflowGraph
    number: int
    freedom: Freedom

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Its nodes, in post-dfs order."""
        return tuple(node for node in self.graph.nodes if node.block == self.number)

    @cached_property
    def first(self) -> int:
        """The index of its first node in the graph."""
        return self.nodes[0].index

    @cached_property
    def allowed(self) -> tuple[tuple[str, ...], ...]:
        """For each node, the labels of the devices that it may run on."""
        return tuple(self.freedom.of(node) for node in self.nodes)

    @cached_property
    def has_choice(self) -> bool:
        """Whether any value may be on several devices."""
        return any(len(labels) > 1 for labels in self.allowed)

    @cached_property
    def outside(self) -> tuple[relax.Var, ...]:
        """The values with a device that the block reads from outside."""
        own = {node.var for node in self.nodes}
        read = dict.fromkeys(var for node in self.nodes for var in used_vars(node.value) if var not in own)
        return tuple(var for var in read if self.freedom.home(var.ty) is not None)

    @cached_property
    def seen(self) -> IndexSet:
        """The nodes whose values are visible outside."""
        return index_set(
            i for i, node in enumerate(self.nodes) if not isinstance(node.var, relax.DataflowVar)
        )

    def place(self, number: int) -> str | None:
        """The label of the device where a node is planned."""
        return self.freedom.home(self.nodes[number].var.ty)

    def fits(self, candidate: Candidate) -> bool:
        """Whether the bindings of a candidate are in this block, and may all be on its device."""
        own = [index - self.first for index in candidate.indexes]
        inside = all(0 <= index < len(self.nodes) for index in own)
        return inside and all(candidate.device in self.allowed[i] or not self.allowed[i] for i in own)

    def is_transparent(self, number: int) -> bool:
        """Whether a node has no place of its own, but that of its readers: a view, a tuple, or a copy that no
        annotation requires.
        """
        node = self.nodes[number]
        return node.is_host or (node.op == COPY and len(self.allowed[number]) > 1)

    def problem(self, whole: Problem, costs: Costs) -> ProblemWithEnds:
        """The problem of the block, from the problem ``whole`` of its function; its options are those that fit into
        the block.

        Options that are not kernels have larger ids than all candidates with costs.
        """
        count, first = len(self.nodes), self.first
        covered = EMPTY
        for option in whole.options:
            covered |= option.inside >> first
        free = whole.free >> first & first_n(count) | ~covered & first_n(count)
        transparent = index_set(i for i in members(free) if self.is_transparent(i))
        first_id = max(costs.keys, default=-1) + 1
        pinned = [
            Option(first_id + i, 1 << i, 0.0, backend=END, device=self.place(i) or "")
            for i in members(free & ~transparent)
        ]
        options = [replace(o, inside=o.inside >> first, hidden=o.hidden >> first) for o in whole.options]
        numbers = {var: number for number, var in enumerate(self.outside)}
        places = {i: place for i in members(self.seen) if (place := self.place(i)) is not None}
        inner = replace(
            whole,
            sources=tuple(
                tuple(source - first for source in node.inputs if source >= first) for node in self.nodes
            ),
            free=transparent,
            options=(*options, *pinned),
            results=self.seen,
            transitions={**self._transitions(whole), **self._copies(costs, [n.var for n in self.nodes])},
            launches={**whole.launches, END: 0.0},
        )
        reads = [sorted({numbers[v] for v in used_vars(n.value) if v in numbers}) for n in self.nodes]
        homes = [self.freedom.home(var.ty) or "" for var in self.outside]
        return with_ends(inner, reads, homes, places, self._copies(costs, self.outside), first_id + count)

    def _transitions(self, whole: Problem) -> dict[tuple[str, str], Transition]:
        end = self.first + len(self.nodes)
        return {
            pair: seconds[self.first : end] if isinstance(seconds, tuple) else seconds
            for pair, seconds in whole.transitions.items()
        }

    def _copies(self, costs: Costs, values: Sequence[relax.Var]) -> dict[tuple[str, str], tuple[float, ...]]:
        """The cost of copying each value, in seconds; a tuple is copied field by field."""
        found: dict[tuple[str, str], tuple[float, ...]] = {}
        for pair, points in costs.copies.items():
            source, destination = pair.split(">")
            found[source, destination] = tuple(copy_seconds(var.ty, points) for var in values)
        return found


def copy_seconds(ty: ir.Type, points: Sequence[tuple[int, float]]) -> float:
    """The seconds to copy all tensors of a type."""
    return sum(at_size(points, nbytes_of(relax.Var("copied", each))) for each in tensors(ty))


def labels_of(blocks: Iterable[FreeBlock]) -> tuple[str, ...]:
    """The labels of all devices that values of the blocks are on, or may be on."""
    found: dict[str, None] = {}
    for block in blocks:
        found.update(dict.fromkeys(label for labels in block.allowed for label in labels))
        homes = [block.freedom.home(var.ty) for var in block.outside]
        found.update(dict.fromkeys(label for label in homes if label is not None))
    return tuple(found)
