"""Inlining of element-wise stages into their readers, so that a fused group makes one pass over memory.

t = relu(x); y = mean(t)   ->   y = mean(relu(x))
c = conv(x); d = c + b; e = relu(d)   ->   c = conv(x); e = relu(c + b)
t[i, k] = x[i, k] * s[k]; c[i, j] = sum(t[i, k] * w[k, j])   ->   c[i, j] = sum(x[i, k] * (w[k, j] * s[k]))
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

from .read import stages_of
from .stage import ASSUMED, Expr, Func, Stage, Var, choices, expensive_calls, nodes, static, substitute

_WINDOW = 64
"""For windows up to this size, padding is inlined and decided again for each element of a window."""
_CHEAP_REUSE = 4
"""How often an element of a cheap stage may be computed; that is cheaper than a pass over memory."""
_LONG = 200
"""The most nodes of an expression that is inlined more than once: a chain of stages that each read the one before
twice would grow to a power of two."""


def inlined_stages(func: Func) -> tuple[Func, tuple[Stage, ...]] | str:
    """The function of :func:`inlined` with its stages, or the reason why it cannot be read as a list of stages."""
    reason = stages_of(func)
    if isinstance(reason, str):  # there may be no root block
        return reason
    flat = inlined(func)
    stages = stages_of(flat)
    return stages if isinstance(stages, str) else (flat, stages)


def inlined(func: Func) -> Func:
    """``func`` with all stages inlined that cost less to compute again than to store."""
    sch = s_tir.Schedule(func, debug_mask="none", error_render_level="none")
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        if why_not_inline(sch, block) is None:
            try:
                sch.compute_inline(block)
            except s_tir.ScheduleError:
                continue
    flat = _with_factors_at_weights(sch.mod["main"])
    return flat.with_attrs(func.attrs) if func.attrs else flat


def why_not_inline(sch: s_tir.Schedule, rv: s_tir.schedule.SBlockRV) -> str | None:
    """Why the block should be stored rather than computed where it is read, or None."""
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
    if len(nodes(block.body.value, ir.Expr)) > _LONG:
        return "it is long and read more than once"
    if len(consumers) == 1 and _scales_what_is_summed(block, consumers[0]):
        return None
    if reuse <= _WINDOW and choices(block.body) and not _chooses_by_lane(block):
        return None
    if any(one.init is not None and _turns(one, _reads(block, one)) > _turns(block) for one in consumers):
        return "a reduction reads each element many times"
    if reuse > _CHEAP_REUSE and nodes(block.body.value, tirx.Div):
        return "it divides, and each element is read many times"
    return None


def _scales_what_is_summed(block: Any, reduction: Any) -> bool:
    """Whether the factor of ``block`` can be moved to the other operand of the product in ``reduction``."""
    if reduction.init is None:
        return False
    written = block.body
    for product in nodes(reduction.body, tirx.Mul):
        read = product.a
        if isinstance(read, TensorLoad) and read.source.same_as(written.buffer):
            values = {
                var: index
                for var, index in zip(written.indices, read.indices, strict=True)
                if isinstance(var, tirx.Var)
            }
            inside = tirx.Mul(substitute(written.value, values), product.b)
            return not _regrouped(inside, _of_one_turn([block, reduction])).same_as(inside)
    return False


def _with_factors_at_weights(func: Func) -> Func:
    """``func`` with factors in reductions moved to the weights (:func:`_regrouped`)."""
    ones = _of_one_turn(nodes(func.body, s_tir.SBlock))

    def regrouped(block: Any) -> Any:
        body = tvm_ffi.structural_map(block.body, (tirx.Mul, lambda product: _regrouped(product, ones)))
        return block if block.init is None or body.same_as(block.body) else _with_body(block, body)

    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlock, regrouped)))


def _with_body(block: Any, body: Stmt) -> Any:
    return s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _of_one_turn(blocks: Sequence[Any]) -> set[Var]:
    return {it.var for block in blocks for it in block.iter_vars if static(it.dom.extent) == 1}


def _regrouped(product: tirx.Mul, ones: set[Var]) -> Expr:
    """(x * s) * w -> x * (w * s), if s depends on fewer iterators than x, and w depends on all of them."""
    if not isinstance(product.a, tirx.Mul):
        return product
    value, factor, weight = product.a.a, product.a.b, product.b
    if not (
        isinstance(value, TensorLoad) and isinstance(factor, TensorLoad) and isinstance(weight, TensorLoad)
    ):
        return product
    if len(_iterators(value) - ones) < len(_iterators(factor) - ones):
        value, factor = factor, value
    along = _iterators(factor) - ones
    fits = along < _iterators(value) - ones and along <= _iterators(weight)
    return value * (weight * factor) if fits else product


def _iterators(load: TensorLoad) -> set[Var]:
    return set(nodes(list(load.indices), tirx.Var))


def _reuse(block: Any, consumer: Any) -> float:
    """How often ``consumer`` reads each element that ``block`` writes, on average."""
    reads = _reads(block, consumer)
    return len(reads) * max(_turns(consumer, reads) / _turns(block), 1 / max(len(reads), 1))


def _reads(block: Any, consumer: Any) -> list[TensorLoad]:
    """The loads of ``consumer`` from what ``block`` writes."""
    target = block.body.buffer
    return [load for load in nodes(consumer.body, TensorLoad) if load.source.same_as(target)]


def _turns(block: Any, reads: Sequence[TensorLoad] = ()) -> float:
    """The product of the extents.

    An axis of an unknown size counts once if it goes through the tensor that ``reads`` read, which is as long. With a
    stride it goes through a part only.
    """
    return prod(_steps(it, reads) for it in block.iter_vars)


def _steps(it: Any, reads: Sequence[TensorLoad]) -> float:
    if (size := static(it.dom.extent)) is not None:
        return size or 1
    if not reads:
        return 1
    analyzer = sym.Analyzer()
    for index in (index for load in reads for index in load.indices):
        linear = sym.detect_linear_equation(analyzer.simplify(index), [it.var])
        step = static(linear[0]) if linear else None
        if step:
            return 1 / abs(step)
    return ASSUMED


def _chooses_by_lane(block: Any) -> bool:
    """Whether a condition depends on the last index, along which a reader would be vectorised."""
    last = block.body.indices[-1] if block.body.indices else None
    return any(
        isinstance(last, tirx.Var) and var.same_as(last)
        for choice in choices(block.body)
        for var in nodes(choice.args[0], tirx.Var)
    )
