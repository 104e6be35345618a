"""The names that the printed function gives to its bindings."""

from __future__ import annotations

import re

from tvm import relax

from ..graph import DataflowGraph


def binding_names(graph: DataflowGraph) -> list[str]:
    """A unique name for each node: that of its variable, with a number if an earlier one has the same name."""
    taken: set[str] = set()
    for param in graph.func.params:
        _fresh(param, taken)
    found = [""] * len(graph)
    for block in graph.func.body.blocks:
        for binding in block.bindings:
            found[graph.index_of[binding.var]] = _fresh(binding.var, taken)
    return found


def _fresh(var: relax.Var, taken: set[str]) -> str:
    base = re.sub(r"\W", "_", var.name, flags=re.ASCII)
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    taken.add(name)
    return name
