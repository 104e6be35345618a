"""Nested: parts of a kernel that stay separate functions inside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..index_set import EMPTY, IndexSet, is_subset, to_text
from .dataflow import DataflowGraph
from .order import NodeGroup, why_no_order


@dataclass(frozen=True, slots=True)
class Nested:
    """Nodes of a kernel that form a separate function inside it."""

    inside: IndexSet
    label: str
    """The ``Composite`` attribute of that function, such as ``onednn.conv2d_relu``."""


def why_not_nested(graph: DataflowGraph, inside: IndexSet, parts: Sequence[Nested]) -> str | None:
    """Why ``parts`` cannot be functions inside a kernel of the nodes ``inside``, or None if they can.

    Parts must lie inside and share no node, and there must be an order to call them in.
    """
    taken = EMPTY
    for part in parts:
        if not part.inside or not is_subset(part.inside, inside):
            return f"part {part.label} {to_text(part.inside)} is not inside {to_text(inside)}"
        if part.inside & taken:
            return f"part {part.label} shares {to_text(part.inside & taken)} with another part"
        taken |= part.inside
    reason = why_no_order(graph, [NodeGroup(part.inside, part.inside) for part in parts], inside)
    return reason and f"parts inside: {reason}"
