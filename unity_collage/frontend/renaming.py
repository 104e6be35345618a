"""Symbolic sizes inside of private functions: each function of Relax has its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir

from ..graph.free_sizes import substituted


def renamed(item: Any, names: Mapping[ir.Var, ir.Var]) -> Any:
    """An expression or a type with other variables of sizes; anything else as it is."""
    if not names or not isinstance(item, (ir.Expr, ir.Type)):
        return item
    return substituted(item, lambda var: names.get(var, var))
