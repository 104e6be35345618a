"""Inline element-wise stages into their neighbours: one pass over memory for a fused group.

t = relu(x); y = mean(t)   ->   y = mean(relu(x))
c = conv(x); d = c + b; e = relu(d)   ->   c = conv(x); e = relu(c + b)
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad

from .stage import Func, choices, expensive_calls, nodes, static

_WINDOW = 64
"""Padding is decided again for each element of a window up to this size, and not copied first."""
_CHEAP_REUSE = 4
"""An element of a cheap stage may be computed again this often; cheaper than a pass over memory."""


def inlined(func: Func) -> Func:
    """``func`` with every stage inlined that costs less to compute again than to store."""
    sch = s_tir.Schedule(func, debug_mask="none", error_render_level="none")
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        if why_not_inline(sch, block) is None:
            try:
                sch.compute_inline(block)
            except s_tir.ScheduleError:
                continue
    return sch.mod["main"].with_attrs(func.attrs) if func.attrs else sch.mod["main"]


def why_not_inline(sch: s_tir.Schedule, rv: s_tir.schedule.SBlockRV) -> str | None:
    """Why the block is better stored than computed where it is read."""
    block: Any = sch.get(rv)
    if block.init is not None or not isinstance(block.body, tirx.BufferStore):
        return "it is not one element-wise store"
    consumers: list[Any] = [sch.get(consumer) for consumer in sch.get_consumers(rv)]
    if not consumers:
        return "it is an output"
    if isinstance(block.body.value, TensorLoad):
        return None
    reuse = sum(_reuse(block, consumer) for consumer in consumers)
    if reuse <= 1:
        reduced = any(consumer.init is not None for consumer in consumers)
        return "its condition differs from lane to lane" if reduced and _chooses_by_lane(block) else None
    if expensive_calls(block.body):
        return "it is expensive and read more than once"
    if reuse <= _WINDOW and choices(block.body) and not _chooses_by_lane(block):
        return None
    if any(consumer.init is not None and _turns(consumer) > _turns(block) for consumer in consumers):
        return "a reduction reads each element many times"
    if reuse > _CHEAP_REUSE and nodes(block.body.value, tirx.Div):
        return "it divides, and each element is read many times"
    return None


def _reuse(block: Any, consumer: Any) -> float:
    """How often ``consumer`` reads one element of what ``block`` writes, on average."""
    target = block.body.buffer
    reads = sum(1 for load in nodes(consumer.body, TensorLoad) if load.source.same_as(target))
    return reads * max(_turns(consumer) / _turns(block), 1 / max(reads, 1))


def _turns(block: Any) -> int:
    return prod(static(it.dom.extent) or 1 for it in block.iter_vars)


def _chooses_by_lane(block: Any) -> bool:
    """Whether a condition depends on the last index, along which a reader would have vectors."""
    last = block.body.indices[-1] if block.body.indices else None
    return any(
        isinstance(last, tirx.Var) and var.same_as(last)
        for choice in choices(block.body)
        for var in nodes(choice.args[0], tirx.Var)
    )
