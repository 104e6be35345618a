"""Small constructors of loops, with which all families write their kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from .stage import Buffer, Expr, Iter, Var, nodes, static

Body = Callable[[Expr], Stmt]


def loop(extent: Expr | int, body: Body, like: Var, kind: ForKind = ForKind.SERIAL) -> Stmt:
    """``for v in range(extent): body(v)`` with a new variable of ``like``'s type; an extent of 1 makes no loop."""
    count = extent if isinstance(extent, int) else static(extent)
    if count == 1:
        return body(tirx.const(0, like.expr_ty().dtype))
    var = tirx.Var(like.name, like.ty)
    bound = (
        tirx.const(extent, like.expr_ty().dtype)
        if isinstance(extent, int)
        else sym.Analyzer().simplify(extent)
    )
    made = body(var)
    stores = nodes(made, tirx.BufferStore) if kind == ForKind.VECTORIZED else []
    if any(_is_one_bfloat16(store, var) for store in stores):
        kind = ForKind.SERIAL
    return tirx.For(var, tirx.const(0, like.expr_ty().dtype), bound, kind, made)


def _is_one_bfloat16(store: tirx.BufferStore, var: Var) -> bool:
    """Whether a loop over ``var`` stores one number of bfloat16 again and again: TVM fails on a vector of it."""
    value = store.value
    is_read = str(value.expr_ty().dtype) == "bfloat16" and isinstance(value, TensorLoad)
    return is_read and not any(used.same_as(var) for used in nodes(value, Var))


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
    """One loop over the product of ``iters``, parallel if ``wanted``: each thread gets one contiguous range."""
    if not iters:
        return body({})
    if not wanted:
        return nest(iters, body)
    turning = _turning(iters)
    total = turning[0].extent
    for it in turning[1:]:
        total = it.extent * total

    def step(fused: Expr) -> Stmt:
        return (
            body(unfused(iters, fused))
            if static(total) is not None
            else _unfused_by_steps(iters, fused, body)
        )

    return loop(sym.Analyzer().simplify(total), step, turning[0].var, ForKind.PARALLEL)


def _unfused_by_steps(iters: Sequence[Iter], fused: Expr, body: Callable[[dict[Var, Expr]], Stmt]) -> Stmt:
    """``body`` of the values of :func:`unfused`, each in a variable of its own.

    The numbers are never negative, but for symbolic sizes TVM does not know that. It replaces a floor division by
    four divisions, and repeats the dividend in each of them. The quotients of four sizes took LLVM half a minute.
    """
    turning, steps = _turning(iters), list[Stmt]()
    values: dict[Var, Expr] = {it.var: tirx.const(0, it.var.expr_ty().dtype) for it in iters}
    for it in reversed(turning):
        own, first = tirx.Var(it.var.name, it.var.ty), it is turning[0]
        values[it.var] = own
        steps.append(opaque(own, fused if first else tirx.truncmod(fused, it.extent)))
        if not first:
            rest = tirx.Var("rest", it.var.ty)
            steps.append(opaque(rest, tirx.truncdiv(fused, it.extent)))
            fused = rest
    return seq(*steps, body(values))


def opaque(var: Var, value: Expr) -> Stmt:
    """Binds ``var`` to ``value`` in a form that TVM cannot analyse: a bitwise "and" with ones only.

    TVM would work out which part of a temporary is written and read, to make it smaller. With sizes that are not known
    that gives conditions in the size of the temporary, which it then cannot lower ("Binding of variable rmod").
    """
    return tirx.Bind(var, tirx.bitwise_and(value, tirx.const(-1, var.expr_ty().dtype)))


def unfused(iters: Sequence[Iter], fused: Expr) -> dict[Var, Expr]:
    """The values of iterators at step ``fused`` of the loop over their product."""
    turning = _turning(iters)
    values: dict[Var, Expr] = {it.var: tirx.const(0, it.var.expr_ty().dtype) for it in iters}
    for it in reversed(turning):
        values[it.var] = fused if it is turning[0] else tirx.floormod(fused, it.extent)
        fused = tirx.floordiv(fused, it.extent)
    return values


def _turning(iters: Sequence[Iter]) -> list[Iter]:
    return [it for it in iters if it.size != 1] or list(iters[:1])


def tiled(extent: int, tile: int) -> tuple[int, Callable[[Expr], Expr]]:
    """The number of tiles that cover [0, extent), and the function from a tile to its start.

    If ``tile`` does not divide ``extent``, the last tile overlaps its neighbour. A kernel that writes a function of its
    inputs may write an element twice, so no tile needs a guard or a remainder loop.
    """
    if extent % tile == 0:
        return extent // tile, lambda turn: turn * tile
    return -(-extent // tile), lambda turn: tirx.min(
        turn * tile, tirx.const(extent - tile, turn.expr_ty().dtype)
    )


def tile_size(size: int, limit: int, exact: bool) -> int:
    """The largest tile size up to ``limit``; if ``exact``, because tiles must not overlap, it divides ``size``."""
    tile = min(size, limit)
    while exact and size % tile:
        tile -= 1
    return tile


def power_of_two(size: int) -> int:
    """The largest power of two up to ``size``: LLVM splits vectors of other lengths."""
    return 1 << (size.bit_length() - 1)


def seq(*stmts: Stmt) -> Stmt:
    """The statements one after the other."""
    return stmts[0] if len(stmts) == 1 else tirx.SeqStmt(list(stmts))


def buffer(shape: Sequence[Expr | int], like: Buffer, name: str) -> Buffer:
    """A new temporary buffer with the element type of ``like``."""
    return buffer_of_type(shape, str(like.dtype), name)


def buffer_of_type(shape: Sequence[Expr | int], dtype: str, name: str) -> Buffer:
    """A new temporary buffer."""
    row_major: Any = None
    return tirx.decl_buffer(shape, dtype, name, layout=row_major)


def with_buffers(buffers: Sequence[Buffer], body: Stmt, name: str) -> Stmt:
    """``body`` in a block that allocates ``buffers``."""
    return s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], name, body, alloc_buffers=list(buffers)))


def with_own_buffers(buffers: Sequence[Buffer], body: Stmt, name: str) -> Stmt:
    """``body`` with new buffers in place of ``buffers``, in a block that allocates them; itself without any."""
    if not buffers:
        return body
    fresh = {old: buffer(list(old.shape), old, old.name) for old in buffers}

    def load(node: TensorLoad) -> Expr:
        return tirx.BufferLoad(fresh[node.source], node.indices) if node.source in fresh else node

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        known = node.buffer in fresh
        return tirx.BufferStore(fresh[node.buffer], node.value, node.indices) if known else node

    mapped = tvm_ffi.structural_map(body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return with_buffers(list(fresh.values()), mapped, name)


def product(iters: Sequence[Iter]) -> int | None:
    """The product of the extents, or None if one is symbolic."""
    sizes = [it.size for it in iters]
    return None if None in sizes else prod(size for size in sizes if size is not None)
