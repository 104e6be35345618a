"""Before a reduction goes by tiles: join axes, split grouped axes, turn operands that lie the wrong way."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Expr, Range
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

from . import build, injective
from .machine import Machine
from .stage import Iter, Stage, nodes, static, stride

_LEAST_REUSE = 4
"""A turned copy is worth it when each element is used at least this often."""
SMALL_STEP = 4
"""A step along the lanes up to which a loop over single elements is still made of vectors by LLVM."""
_MOST_ELEMENTS = 1 << 23
"""A copy that repeats elements (im2col) may be as large as this."""


def joined(stage: Stage, result: Stage) -> tuple[Stage, Stage]:
    """Both stages over the same iterators, with axes split where groups begin, and joined where every
    tensor walks through two as through one."""
    stage, result = _split_groups(stage, result)
    analyzer = sym.Analyzer()
    position = len(stage.spatial) - 1
    while position > 0:
        first, second = stage.spatial[position - 1 : position + 1]
        accesses = (*stage.loads, *stage.stores, *result.loads, *result.stores)
        if second.size and first.size and all(injective.one_walk(a, first, second, analyzer) for a in accesses):
            stage, result = _join(stage, result, first, second)
        position -= 1
    return stage, result


def _join(stage: Stage, result: Stage, first: Iter, second: Iter) -> tuple[Stage, Stage]:
    size = (first.size or 1) * (second.size or 1)
    both = Iter(tirx.Var(second.var.name, second.var.ty), tirx.const(size, second.var.ty.dtype), False)
    values = {
        first.var: tirx.floordiv(both.var, second.extent),
        second.var: tirx.floormod(both.var, second.extent),
    }

    def iters(of: Stage) -> list[Iter]:
        return [both if it is second else it for it in of.iters if it is not first]

    return stage.substituted(values, iters(stage)), result.substituted(values, iters(result))


def _split_groups(stage: Stage, result: Stage) -> tuple[Stage, Stage]:
    """An axis ``f`` that is read as ``f // c`` becomes the two axes ``g`` and ``o`` of ``f = g * c + o``."""
    for quotient in nodes(stage.body, tirx.FloorDiv):
        size = static(quotient.b)
        found = [it for it in stage.spatial if isinstance(quotient.a, tirx.Var) and it.var.same_as(quotient.a)]
        if size and found and (found[0].size or 1) % size == 0 and size > 1:
            it = found[0]
            outer = Iter(tirx.Var("g", it.var.ty), tirx.const((it.size or 1) // size, it.var.ty.dtype), False)
            inner = Iter(tirx.Var(it.var.name, it.var.ty), tirx.const(size, it.var.ty.dtype), False)
            return tuple(_simplified(_replaced(of, it, outer, inner)) for of in (stage, result))  # type: ignore
    return stage, result


def _replaced(stage: Stage, old: Iter, outer: Iter, inner: Iter) -> Stage:
    iters = [new for it in stage.iters for new in ((outer, inner) if it is old else (it,))]
    return stage.substituted({old.var: outer.var * static(inner.extent) + inner.var}, iters)


def _simplified(stage: Stage) -> Stage:
    analyzer = sym.Analyzer()
    for it in stage.iters:
        analyzer.bind(it.var, Range.from_min_extent(0, it.extent))

    def load(node: TensorLoad) -> Expr:
        return tirx.BufferLoad(node.source, [analyzer.simplify(index) for index in node.indices])

    return Stage(stage.name, stage.iters, stage.init, tvm_ffi.structural_map(stage.body, (TensorLoad, load)), stage.temporary)


def packed(
    stage: Stage, result: Stage, machine: Machine, threads: bool
) -> tuple[Stage, list[Stmt], list[tirx.Buffer]] | str:
    """``stage`` with each operand contiguous or constant along the result's last axis; the copies that
    make it so; and their buffers."""
    analyzer = sym.Analyzer()
    if result.store is None or stage.store is None:
        return "it writes several tensors"
    lanes = [it for it in stage.spatial if it.size != 1 and static(stride(result.store, it.var, analyzer)) == 1]
    if not lanes or lanes[0].size is None:
        return "the result has no contiguous axis of a known size"
    copies: list[Stmt] = []
    buffers: list[tirx.Buffer] = []
    for load in stage.loads:
        if load.source.same_as(stage.store.buffer) or static(stride(load, lanes[0].var, analyzer)) in (0, 1):
            continue
        used = [it for it in stage.iters if it.var in nodes(load.indices, tirx.Var)]
        reason = _why_not_pack(stage, used, lanes[0])
        if reason is not None and 1 < (static(stride(load, lanes[0].var, analyzer)) or 0) <= SMALL_STEP:
            continue
        if reason is not None:
            return f"{load.source.name} is not contiguous along the lanes, and {reason}"
        order = [*(it for it in used if it is not lanes[0]), lanes[0]]
        buffer = tirx.decl_buffer([it.extent for it in order], str(load.source.dtype), "packed")
        copies.append(_copy(load, buffer, order, machine, threads))
        buffers.append(buffer)
        replacement = tirx.BufferLoad(buffer, [it.var for it in order])
        stage = with_load(stage, load, replacement)
    return stage, copies, buffers


def _why_not_pack(stage: Stage, used: Sequence[Iter], lane: Iter) -> str | None:
    if not any(it is lane for it in used):
        return "it does not follow the lanes"
    if any(it.size is None for it in stage.iters):
        return "a shape is symbolic"
    reuse = prod(it.size or 1 for it in stage.spatial if not any(it is one for one in used))
    if reuse < _LEAST_REUSE:
        return "each element is used too seldom for a copy"
    if prod(it.size or 1 for it in used) > _MOST_ELEMENTS:
        return "a copy would be too large"
    return None


def _copy(load: TensorLoad, buffer: tirx.Buffer, order: Sequence[Iter], machine: Machine, threads: bool) -> Stmt:
    fresh = [Iter(tirx.Var(it.var.name, it.var.ty), it.extent, False) for it in order]
    body = tirx.BufferStore(buffer, load, [it.var for it in order])
    stage = Stage("pack", tuple(order), None, body, temporary=True)
    values = {old.var: new.var for old, new in zip(order, fresh, strict=True)}
    return injective.emit(stage.substituted(values, fresh), machine, threads)


def with_load(stage: Stage, old: TensorLoad, new: Expr) -> Stage:
    def load(node: TensorLoad) -> Expr:
        return new if node.same_as(old) else node

    return Stage(stage.name, stage.iters, stage.init, tvm_ffi.structural_map(stage.body, (TensorLoad, load)), stage.temporary)
