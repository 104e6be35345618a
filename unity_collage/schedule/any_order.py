"""Whether the iterations of a block may run in any order.

The kinds of its iterators say so, but handwritten ones may be wrong: those of a recurrence, of a scatter, or of calls
with effects. In the order in which they are written, such loops compute what is meant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import sym, tirx
from tvm.ir.expr import TensorLoad

from ..graph.prim_funcs import call_with_effects
from .stage import Expr, Var, buffer_of, nodes, static


def why_not(block: Any) -> str | None:
    """Why the iterations of an ``SBlock`` without loops inside must stay in their order, or None."""
    if called := call_with_effects(block.body):
        return f"it calls {called}, which may have effects"
    return _why_dependent(block)


def _why_dependent(block: Any) -> str | None:
    """Why iterations of ``block`` that do not reduce depend on each other, or None."""
    stores = nodes(block.body, tirx.BufferStore)
    for store in stores:
        for access in (*stores, *nodes(block.body, TensorLoad)):
            if buffer_of(access).same_as(store.buffer) and not _in_one_turn(access.indices, store.indices):
                return f"it uses elements of {store.buffer.name} that other iterations write"
    named = [binding.var for binding in nodes(block.body, (tirx.Bind, tirx.Let))]
    return next((why for store in stores if (why := _why_shared(store, block.iter_vars, named))), None)


def _in_one_turn(one: Sequence[Expr], other: Sequence[Expr]) -> bool:
    """Whether two accesses are of one element, or differ by constant indexes alone."""
    return all(
        tvm_ffi.structural_equal(a, b) or (static(a) is not None and static(b) is not None)
        for a, b in zip(one, other, strict=True)
    )


def _why_shared(store: tirx.BufferStore, iterators: Sequence[Any], named: Sequence[Var]) -> str | None:
    """Why several iterations that do not reduce may write to one element, or None.

    ``named``: the variables that the block binds to values.
    """
    name, indices = store.buffer.name, list(store.indices)
    if nodes(indices, TensorLoad) or _uses(indices, named):
        return f"it computes from values where it writes to {name}"
    turning = [it for it in iterators if static(it.dom.extent) != 1]
    if _uses(indices, [it.var for it in turning if it.iter_type == tirx.IterVar.CommReduce]):
        return f"it writes several elements of {name} for one result"
    left = list(zip(indices, store.buffer.shape, strict=True))
    extents = {it.var: it.dom.extent for it in turning if it.iter_type == tirx.IterVar.DataPar}
    for var in list(extents):
        others = [other for other in extents if not other.same_as(var)]
        own = (pair for pair in left if _slope(pair[0], var) and not _uses(pair[0], others))
        if (found := next(own, None)) is not None:
            left.remove(found)
            del extents[var]
    apart = not extents or (bool(left) and _are_apart(left, extents))
    return None if apart else f"several iterations may write one element of {name}"


def _are_apart(dimensions: Sequence[tuple[Expr, Expr]], extents: Mapping[Var, Expr]) -> bool:
    """Whether the iterators write to different places in these dimensions: indexes, each with its extent.

    They are digits of the place: each steps over all places of those with smaller steps.
    """
    place = reduce(lambda outer, own: outer * own[1] + own[0], dimensions[1:], dimensions[0][0])
    steps = sorted((abs(_slope(place, var)), static(extent) or 0) for var, extent in extents.items())
    reach = 0
    for step, size in steps:
        if step <= reach or not size:
            return False
        reach += step * (size - 1)
    return True


def _slope(index: Expr, var: Var) -> int:
    """By how much ``index`` grows with ``var``; 0 where it does not, or not by a constant."""
    if index.same_as(var):
        return 1
    linear = sym.detect_linear_equation(sym.Analyzer().simplify(index), [var])
    return (static(linear[0]) or 0) if linear else 0


def _uses(exprs: Any, variables: Sequence[Var]) -> bool:
    return bool(variables) and any(used.same_as(var) for used in nodes(exprs, tirx.Var) for var in variables)
