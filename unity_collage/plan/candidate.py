"""Candidates: groups of bindings that could be kernels, and the bindings that backends refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..graph import DataflowGraph, Nested, SubGraph
from ..index_set import index_set
from .composite_part import CompositePart
from .plan import VIEW as VIEW


@dataclass(frozen=True, slots=True)
class Candidate:
    """These bindings could be one kernel of this backend, or need no kernel if the backend is ``VIEW``."""

    id: int
    backend: str
    rule: str
    label: str
    indexes: tuple[int, ...] = field(metadata={"key": "bindings"})
    """Post-dfs indexes of the bindings."""
    hidden: tuple[int, ...] = ()
    """Bindings that this kernel computes without writing their values, although other kernels read them too."""
    composites: tuple[CompositePart, ...] = ()
    threads: int | None = None
    """How many threads of the pool run the kernel; None: its backend decides, up to all."""
    options: tuple[tuple[str, str], ...] = ()
    """The options of the backend's library, by their names there."""
    device: str = ""
    """Where the kernel would run, as ``kind:index``; empty: there is one device.

    If planning leaves the device of bindings free, each device has a candidate, and the search chooses.
    """

    @property
    def title(self) -> str:
        """The label, with the number of threads if the candidate has one."""
        return self.label if self.threads is None else f"{self.label} (threads: {self.threads})"

    def sub_graph(self, graph: DataflowGraph) -> SubGraph:
        """The candidate's bindings as a part of ``graph``."""
        parts = tuple(Nested(index_set(indexes), label) for label, indexes in self.composites)
        return SubGraph(graph, index_set(self.indexes), index_set(self.hidden), parts)


@dataclass(frozen=True, slots=True)
class DeclinedBinding:
    """A binding that a backend refused."""

    backend: str
    index: int = field(metadata={"key": "binding"})
    reason: str
    condition: str = "predicate"
    """What refused it: ``predicate`` of the backend, ``validity`` of the group, a ``limit`` or the ``target``."""
