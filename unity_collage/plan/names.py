"""Bindings by the names that the printed function gives them."""

from __future__ import annotations

import re

from tvm import relax

from ..graph import DataflowGraph


def binding_names(graph: DataflowGraph) -> list[str]:
    """For each node, a name that no other has: what it is called, with a number if an earlier one is called so."""
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
