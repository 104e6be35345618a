"""What the PrimFuncs of a function require of its inputs, from their loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import ir, relax, s_tir, tirx

from ..graph.calls import calls
from ..graph.extract import prim_funcs_of
from ..graph.prim_funcs import prim_func_of, tensors_of

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def operators_inside(func: relax.Function) -> frozenset[str]:
    """The operators of Relax that the PrimFuncs of ``func`` compute: intrinsics, divisions by data, sums."""
    found: set[str] = set()
    for prim in prim_funcs_of(func).functions.values():
        names = (str(getattr(call.op, "name", "")).rpartition(".")[2] for call in _nodes(prim, ir.Call))
        found.update("relax.power" if name == "pow" else f"relax.{name}" for name in names)
        if any(_nodes(division.b, ir.TensorLoad) for division in _nodes(prim, _DIVISIONS)):
            found.add("relax.divide")
        if any(block.init is not None for block in _nodes(prim, s_tir.SBlock)):
            found.add("relax.sum")
    return frozenset(found)


def index_bounds(func: relax.Function) -> Iterator[tuple[relax.Var, int]]:
    """Operands that PrimFuncs of ``func`` take indexes from, each with an extent that it indexes.

    Where a PrimFunc multiplies an index, only 0 is certain to be inside.
    """
    mod = prim_funcs_of(func)
    for call in calls(func):
        prim = prim_func_of(call, mod)
        if prim is None:
            continue
        operands = dict(zip(prim.params, tensors_of(call), strict=False))
        for index, extent in _indexes(prim):
            for load in _nodes(index, ir.TensorLoad):
                operand = operands.get(load.source)
                if isinstance(operand, relax.Var) and isinstance(extent, tirx.IntImm):
                    yield operand, 1 if _nodes(index, tirx.Mul) else max(1, int(extent.value))


def _indexes(prim: tirx.PrimFunc) -> Iterator[tuple[Any, Any]]:
    """Each index of each access, with the extent of its axis."""
    for access in _nodes(prim.body, (ir.TensorLoad, tirx.BufferStore)):
        buffer = access.source if isinstance(access, ir.TensorLoad) else access.buffer
        yield from zip(access.indices, buffer.shape, strict=True)


def _nodes(root: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, lambda node: found.append(node)))
    return found
