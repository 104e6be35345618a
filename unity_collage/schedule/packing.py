"""Packing: copies of operands in the order in which a register tile reads them.

As in BLAS libraries (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008), a copy makes
the loads of the inner loop contiguous. It costs one pass over the operand, so it is made only if each element is used
often.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import sym, tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

from . import build, injective
from .axes import axis, with_value
from .cpu import CpuTraits
from .stage import ASSUMED, Buffer, Expr, Iter, Stage, Var, choices, nodes, static, stride
from .tiling import SMALL_STEP, operands, result_lane

_LEAST_REUSE = 4
"""How often each element must be used for a copy to pay."""
_MOST_ELEMENTS = 1 << 23
"""The most elements of a copy, which may repeat elements (im2col)."""

Packed = tuple[Stage, list[Stmt], list[Buffer]]


def turned(stage: Stage, result: Stage, cpu: CpuTraits, threads: bool) -> Packed | str:
    """``stage`` with all operands contiguous or constant along the lanes, the copies that make them so, and their
    buffers.

    Or the reason why an operand cannot be copied.
    """
    lane, analyzer = result_lane(stage, result), sym.Analyzer()
    if lane is None:
        return "the result has no contiguous axis of a known size"
    copies: list[Stmt] = []
    buffers: list[Buffer] = []
    for load in operands(stage):
        if not any(load.same_as(left) for left in stage.loads):
            continue  # it is in the copy of another operand under the same condition
        step, value = static(stride(load, lane.var, analyzer)), _with_condition(stage, load)
        reason = None if step in (0, 1) else _why_not_turn(stage, value, lane)
        if step in (0, 1) or (reason is not None and step is not None and 0 < step <= SMALL_STEP):
            continue
        if reason is not None:
            return f"{load.source.name} is not contiguous along the lanes, and {reason}"
        order = [*(it for it in _used(stage.iters, value) if it is not lane), lane]
        copy, buffer = copied(value, order, {}, cpu, threads)
        copies.append(copy)
        buffers.append(buffer)
        stage = with_value(stage, value, tirx.BufferLoad(buffer, [it.var for it in order]))
    return stage, copies, buffers


def why_not_columns(stage: Stage, load: TensorLoad, fixed: Sequence[Iter]) -> str | None:
    """Why no copy of some columns of the operand ``load`` can be made where only the iterators ``fixed`` and the lanes
    are known, or None."""
    value = _with_condition(stage, load)
    if _reads_result(stage, value):
        return "it is read under a condition on the result"
    known = [*fixed, *stage.reduction]
    if any(not any(it is one for one in known) for it in _used(stage.spatial, value)):
        return "it is read under a condition on the rows"
    return None


def columns(
    stage: Stage, load: TensorLoad, lane: Iter, left: Expr, width: int, cpu: CpuTraits
) -> tuple[Stmt, Buffer, Stage]:
    """A copy of ``width`` columns of the operand ``load`` from ``left`` on, its buffer, and the stage that reads it."""
    value = _with_condition(stage, load)
    used = _used(stage.reduction, value)
    part = axis(lane.var, width)
    copy, buffer = copied(value, [*used, part], {lane.var: left + part.var}, cpu, False)
    narrow = tirx.BufferLoad(buffer, [*(it.var for it in used), lane.var - left])
    return copy, buffer, with_value(stage, value, narrow)


def copied(
    value: Expr, order: Sequence[Iter], values: dict[Var, Expr], cpu: CpuTraits, threads: bool
) -> tuple[Stmt, Buffer]:
    """Loops that fill a new buffer with ``value``, and the buffer; its dimensions are the iterators in ``order``."""
    buffer = build.buffer_of_type([it.extent for it in order], str(value.expr_ty().dtype), "packed")
    fresh = [axis(it.var, it.extent) for it in order]
    store = tirx.BufferStore(buffer, value, [it.var for it in order])
    renamed: dict[Var, Expr] = {old.var: new.var for old, new in zip(order, fresh, strict=True)}
    whole = Stage("pack", (), None, store, temporary=True).substituted(values, order)
    return injective.emit(whole.substituted(renamed, fresh), cpu, threads), buffer


def _why_not_turn(stage: Stage, value: Expr, lane: Iter) -> str | None:
    if _reads_result(stage, value):
        return "it is read under a condition on the result"
    used = _used(stage.iters, value)
    if not any(it is lane for it in used):
        return "it does not follow the lanes"
    if any(it.size is None for it in used):
        return "its shape is symbolic"
    turns = prod(it.size or ASSUMED for it in stage.spatial if not any(it is one for one in used))
    if turns < _LEAST_REUSE:
        return "each element is used too seldom for a copy"
    if prod(it.size or 1 for it in used) > _MOST_ELEMENTS:
        return "a copy would be too large"
    return None


def _with_condition(stage: Stage, load: TensorLoad) -> Expr:
    """The outermost choice around ``load``, or ``load``: without its condition it may read outside of its tensor."""
    around = [
        one for one in choices(stage.body) if any(load.same_as(node) for node in nodes(one, TensorLoad))
    ]
    return around[-1] if around else load


def _reads_result(stage: Stage, value: Expr) -> bool:
    """Whether ``value`` has the result of the reduction so far."""
    store = stage.store
    return store is not None and any(load.source.same_as(store.buffer) for load in nodes(value, TensorLoad))


def _used(iters: Sequence[Iter], value: Expr) -> list[Iter]:
    found = nodes(value, tirx.Var)
    return [it for it in iters if any(it.var.same_as(var) for var in found)]
