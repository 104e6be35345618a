"""Kernels with calls of libraries: the loops between the calls are scheduled, and the calls stay in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

from . import build
from .read import PASSED_ON
from .stage import Buffer, Func, nodes

Written = Callable[[Func], "Func | str"]
"""New loops for a function without such calls, or the reason why it keeps its own."""


def has_calls(func: Func) -> bool:
    """Whether the kernel calls a library between its loops."""
    return any(map(_is_call, _statements(func)))


def around_calls(func: Func, written: Written, unscheduled: str) -> Func | str:
    """``func`` with new loops between its calls, or the reason why none of its loops get new ones.

    Loops that fit no family stay; the attribute ``unscheduled`` has the first reason.
    """
    parts: list[Stmt] = []
    reasons: list[str] = []
    has_new = False
    temporaries: list[Buffer] = list(_root(func).alloc_buffers)
    for is_call, group in groupby(_statements(func), _is_call):
        own = list(group)
        if is_call:
            parts += own
            continue
        elsewhere = [statement for statement in _statements(func) if statement not in own]
        inside = [buffer for buffer in temporaries if _uses(own, buffer) and not _uses(elsewhere, buffer)]
        found = written(_alone(func, own, inside))
        if isinstance(found, str):
            parts += own
            reasons.append(found)
            continue
        has_new = True
        parts.append(_root(found).body)
        temporaries = [buffer for buffer in temporaries if buffer not in inside]
        temporaries += _root(found).alloc_buffers
    if not has_new:
        return reasons[0] if reasons else "it only calls libraries"
    made = func.with_body(build.with_buffers(temporaries, build.seq(*parts), "root"))
    return made.with_attr(unscheduled, reasons[0]) if reasons else made


def _alone(func: Func, statements: Sequence[Stmt], inside: Sequence[Buffer]) -> Func:
    """The statements as a function of the buffers that are used outside of them too."""
    outer = [
        buffer
        for buffer in (*func.params, *_root(func).alloc_buffers)
        if buffer not in inside and _uses(statements, buffer)
    ]
    body = build.with_buffers(inside, build.seq(*statements), "root")
    passed_on = [number for number, buffer in enumerate(outer) if buffer not in list(func.params)]
    return tirx.PrimFunc(outer, body, func.ret_type, func.attrs).with_attr(PASSED_ON, passed_on)


def _root(func: Func) -> s_tir.SBlock:
    assert isinstance(func.body, s_tir.SBlockRealize)
    return func.body.block


def _statements(func: Func) -> list[Stmt]:
    """The statements of the root block; none where there is no root block."""
    realize = func.body
    if not isinstance(realize, s_tir.SBlockRealize) or realize.block.iter_vars:
        return []
    body = realize.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _is_call(statement: Stmt) -> bool:
    if not isinstance(statement, s_tir.SBlockRealize) or statement.block.iter_vars:
        return False
    body = statement.block.body
    return all(
        isinstance(part, tirx.Evaluate) for part in (body.seq if isinstance(body, tirx.SeqStmt) else [body])
    )


def _uses(statements: Sequence[Stmt], buffer: Buffer) -> bool:
    return any(
        used.same_as(buffer)
        for statement in statements
        for used in (
            *(load.source for load in nodes(statement, TensorLoad)),
            *(store.buffer for store in nodes(statement, tirx.BufferStore)),
            *nodes(statement, tirx.Var),
        )
    )
