"""Small constructors of loops: what every family uses to write its kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import s_tir, sym, tirx
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from .stage import Buffer, Expr, Iter, Var, static

Body = Callable[[Expr], Stmt]


def loop(extent: Expr | int, body: Body, like: Var, kind: ForKind = ForKind.SERIAL) -> Stmt:
    """``for v in range(extent): body(v)`` with a fresh variable of ``like``'s type; one turn is no loop."""
    count = extent if isinstance(extent, int) else static(extent)
    if count == 1:
        return body(tirx.const(0, like.expr_ty().dtype))
    var = tirx.Var(like.name, like.ty)
    bound = (
        tirx.const(extent, like.expr_ty().dtype)
        if isinstance(extent, int)
        else sym.Analyzer().simplify(extent)
    )
    return tirx.For(var, tirx.const(0, like.expr_ty().dtype), bound, kind, body(var))


def nest(
    iters: Sequence[Iter], body: Callable[[dict[Var, Expr]], Stmt], kind: ForKind = ForKind.SERIAL
) -> Stmt:
    """Loops over all of ``iters``, outermost first; ``body`` gets the value of each iterator."""

    def inner(rest: Sequence[Iter], values: dict[Var, Expr]) -> Stmt:
        if not rest:
            return body(values)
        head, *tail = rest
        return loop(head.extent, lambda v: inner(tail, {**values, head.var: v}), head.var, kind)

    return inner(list(iters), {})


def parallel(iters: Sequence[Iter], body: Callable[[dict[Var, Expr]], Stmt], wanted: bool) -> Stmt:
    """One loop over the product of ``iters``, parallel when ``wanted``: each thread gets one run of it."""
    if not iters:
        return body({})
    if not wanted:
        return nest(iters, body)
    turning = [it for it in iters if it.size != 1] or list(iters[:1])
    total = turning[0].extent
    for it in turning[1:]:
        total = it.extent * total

    def unfused(fused: Expr) -> Stmt:
        values: dict[Var, Expr] = {it.var: tirx.const(0, it.var.expr_ty().dtype) for it in iters}
        for it in reversed(turning):
            values[it.var] = fused if it is turning[0] else tirx.floormod(fused, it.extent)
            fused = tirx.floordiv(fused, it.extent)
        return body(values)

    return loop(sym.Analyzer().simplify(total), unfused, turning[0].var, ForKind.PARALLEL)


def tiled(extent: int, tile: int) -> tuple[int, Callable[[Expr], Expr]]:
    """Turns and starts of tiles that cover [0, extent); the last one overlaps its neighbour.

    A kernel that writes a function of its inputs may write an element twice, so no tile needs a
    guard or a tail.
    """
    if extent % tile == 0:
        return extent // tile, lambda turn: turn * tile
    return -(-extent // tile), lambda turn: tirx.min(
        turn * tile, tirx.const(extent - tile, turn.expr_ty().dtype)
    )


def tile_size(size: int, limit: int, exact: bool) -> int:
    """The largest tile up to ``limit``; one that divides ``size`` when tiles must not overlap."""
    tile = min(size, limit)
    while exact and size % tile:
        tile -= 1
    return tile


def power_of_two(size: int) -> int:
    """The largest power of two up to ``size``: vectors of other lengths are taken apart by LLVM."""
    return 1 << (size.bit_length() - 1)


def seq(*stmts: Stmt) -> Stmt:
    """The statements one after the other."""
    return stmts[0] if len(stmts) == 1 else tirx.SeqStmt(list(stmts))


def buffer(shape: Sequence[Expr | int], like: Buffer, name: str) -> Buffer:
    """A fresh temporary of ``like``'s element type."""
    row_major: Any = None
    return tirx.decl_buffer(shape, str(like.dtype), name, layout=row_major)


def with_buffers(buffers: Sequence[Buffer], body: Stmt, name: str) -> Stmt:
    """``body`` in the scope of fresh temporary buffers."""
    return s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], name, body, alloc_buffers=list(buffers)))


def product(iters: Sequence[Iter]) -> int | None:
    """The number of turns of all loops together, or None when an extent is symbolic."""
    sizes = [it.size for it in iters]
    return None if None in sizes else prod(size for size in sizes if size is not None)
