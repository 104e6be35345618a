"""WholeCones: the largest cones, of any length. FuseOps fuses even chains that are too long for FusionCone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..graph import DataflowGraph, SubGraph
from ..index_set import EMPTY, size
from .base import Declined, Found
from .cone import FusionCone
from .tree import Printed


@dataclass(frozen=True, slots=True)
class WholeCones(Printed):
    """For each cone that is in no other, the largest one, if it has more than ``beyond`` nodes or is deeper.

    This gives one kernel for each group of FuseOps that is too long for FusionCone. Compiling such kernels takes LLVM
    long, so parts of them are not offered.
    """

    beyond: FusionCone = field(default_factory=FusionCone)
    """The rule that offers smaller cones."""
    max_size: int = 64
    """Most nodes inside."""
    name: str = "whole cone"

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        longest = FusionCone(max_depth=self.max_size, max_size=self.max_size)
        able = longest.able(graph)
        covered = EMPTY
        for node in reversed(graph.nodes):
            if covered >> node.index & 1 or not able[node.index] or node.is_host:
                continue
            region = longest.largest(graph, 1 << node.index, able)
            covered |= region
            too_deep = SubGraph(graph, region).depth > self.beyond.max_depth
            if size(region) > self.beyond.max_size or too_deep:
                yield Found(region, self.name, SubGraph(graph, region).label)
