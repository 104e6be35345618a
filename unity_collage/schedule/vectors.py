"""One loop over contiguous memory, cut into vectors."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build
from .cpu import CpuTraits
from .stage import Expr, Stage, buffer_of

_REGISTERS_A_TURN = 2
"""Independent vectors in one iteration; with more, the code only becomes longer."""
_SMALLEST = 4
"""Shorter loops are not vectorised."""


def emit(stage: Stage, cpu: CpuTraits) -> Stmt:
    """Loops for ``stage``, which has one iterator left, vector by vector."""
    (it,) = stage.iters
    width = _width(stage, cpu)

    def at(start: Expr, count: int | Expr, kind: ForKind) -> Stmt:
        return build.loop(count, lambda i: stage.substituted({it.var: start + i}, []).body, it.var, kind)

    if it.size is None:
        whole, rest = tirx.floordiv(it.extent, width), tirx.floormod(it.extent, width)
        head = build.loop(whole, lambda turn: at(turn * width, width, ForKind.VECTORIZED), it.var)
        return build.seq(head, at(whole * width, rest, ForKind.SERIAL))
    width = build.power_of_two(min(width, it.size))
    if stage.once_only and it.size % width:
        head = build.loop(it.size // width, lambda turn: at(turn * width, width, ForKind.VECTORIZED), it.var)
        tail = tirx.const(it.size // width * width, it.var.expr_ty().dtype)
        return build.seq(head, at(tail, it.size % width, _kind(it.size % width)))
    turns, start = build.tiled(it.size, width)
    return build.loop(turns, lambda turn: at(start(turn), width, _kind(width)), it.var)


def _kind(count: int) -> ForKind:
    return ForKind.VECTORIZED if count >= _SMALLEST else ForKind.SERIAL


def lanes(stage: Stage, cpu: CpuTraits) -> int:
    """The elements of the widest type in the stage that one vector register holds."""
    buffers = [buffer_of(access) for access in (*stage.loads, *stage.stores)]
    return min(cpu.lanes(str(buffer.dtype)) for buffer in buffers)


def _width(stage: Stage, cpu: CpuTraits) -> int:
    (it,) = stage.iters
    one = lanes(stage, cpu)
    return one if it.size is not None and it.size < one * _REGISTERS_A_TURN else one * _REGISTERS_A_TURN
