"""Reading a PrimFunc as a list of stages, in a normal form that the families can analyse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.stmt import Stmt

from . import any_order
from .axes import simplified
from .stage import Buffer, Expr, Func, Iter, Stage, Var, nodes, static, substitute

PASSED_ON = "passed_on"
"""Attribute of a part of a kernel: the numbers of its parameters that are temporaries of the kernel."""


def stages_of(func: Func) -> tuple[Stage, ...] | str:
    """The stages of ``func`` in program order, or the reason why it is not a list of stages."""
    realize = func.body
    if not isinstance(realize, s_tir.SBlockRealize) or realize.block.iter_vars:
        return "the body is not a root block"
    body = realize.block.body
    temporaries = list(realize.block.alloc_buffers)
    passed_on = [func.params[int(number)] for number in (func.attrs or {}).get(PASSED_ON, ())]
    found: list[Stage] = []
    for nest in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        stage = _stage(nest)
        if isinstance(stage, str):
            return stage
        found += (
            replace(part, temporary=_writes(part, temporaries), passed_on=_writes(part, passed_on))
            for part in _unbundled(simplified(stage))
        )
    return tuple(found)


def _writes(stage: Stage, buffers: Sequence[Buffer]) -> bool:
    return any(store.buffer.same_as(buffer) for store in stage.stores for buffer in buffers)


def _stage(nest: Stmt) -> Stage | str:
    """The stage of a perfect serial loop nest whose block binds each iterator to a separate loop, or why it is not
    one."""
    extents: dict[Var, Expr] = {}
    while isinstance(nest, tirx.For):
        if nest.kind != tirx.ForKind.SERIAL or nest.annotations or static(nest.min) != 0:
            return f"loop {nest.loop_var.name} is already scheduled"
        extents[nest.loop_var] = nest.extent
        nest = nest.body
    if not isinstance(nest, s_tir.SBlockRealize):
        return "a loop nest does not end in one block"
    block = nest.block
    if block.alloc_buffers or block.match_buffers or static(nest.predicate) != 1:
        return f"block {block.name_hint} has a predicate or buffers of its own"
    if nodes(block.body, (s_tir.SBlock, tirx.For, tirx.While, tirx.IfThenElse)):
        return f"block {block.name_hint} has control flow inside"
    iters: list[Iter] = []
    for it, value in zip(block.iter_vars, nest.iter_values, strict=True):
        if it.iter_type not in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce):
            return f"block {block.name_hint} has an ordered iterator"
        if not _is_loop(value, it.dom.extent, extents):
            return f"block {block.name_hint} does not bind each iterator to a loop"
        if static(it.dom.extent) == 0:
            return f"block {block.name_hint} has an axis without elements"
        iters.append(Iter(it.var, it.dom.extent, it.iter_type == tirx.IterVar.CommReduce))
    if any(static(extent) != 1 for extent in extents.values()):
        return f"block {block.name_hint} is repeated by a loop"
    if reason := any_order.why_not(block):
        return f"block {block.name_hint} stays in its order: {reason}"
    return Stage(block.name_hint, tuple(iters), block.init, block.body)


def _is_loop(value: Expr, extent: Expr, extents: dict[Var, Expr]) -> bool:
    """Whether an iterator is bound to a separate loop of ``extent``, which is then removed from ``extents``."""
    if isinstance(value, tirx.Var) and value in extents:
        return tvm_ffi.structural_equal(extents.pop(value), extent)
    return static(value) == 0 and static(extent) == 1


def _unbundled(stage: Stage) -> list[Stage]:
    """The independent reductions of a stage as separate stages, such as a sum and a sum of squares.

    Results that depend on each other, such as a maximum and its index, stay together.
    """
    body, init = stage.body, stage.init
    if not isinstance(body, tirx.SeqStmt) or not isinstance(init, tirx.SeqStmt):
        return [stage]
    values: dict[Var, Expr] = {}
    stores: list[tirx.BufferStore] = []
    for statement in body.seq:
        if isinstance(statement, tirx.Bind):
            values[statement.var] = substitute(statement.value, values)
        elif isinstance(statement, tirx.BufferStore):
            stores.append(substitute(statement, values))
    if len(stores) != len(init.seq) or not _independent(stores):
        return [stage]
    parts = [replace(stage, init=first, body=store) for first, store in zip(init.seq, stores, strict=True)]
    return parts if all(map(_starts_itself, parts)) else [stage]


def _starts_itself(stage: Stage) -> bool:
    """Whether the initial value is for the buffer that the stage writes."""
    init, store = stage.init, stage.store
    return isinstance(init, tirx.BufferStore) and store is not None and init.buffer.same_as(store.buffer)


def _independent(stores: list[tirx.BufferStore]) -> bool:
    """Whether no store reads the buffer of another one."""
    reads = {i: Stage("", (), None, store).loads for i, store in enumerate(stores)}
    return not any(
        load.source.same_as(other.buffer)
        for i, loads in reads.items()
        for load in loads
        for j, other in enumerate(stores)
        if i != j
    )
