"""Transposition of a square tile in vector registers; each vector is loaded and stored as a whole.

    step s = n/2, ..., 2, 1:  rows i and i + s (bit s of i is 0) exchange the lanes whose bit s differs

This is Eklundh's algorithm (1972) for matrix transposition. Each step takes one shuffle of two operands for each row,
so a tile of n x n takes n log2(n) shuffles; element by element it takes n^2 loads.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build
from .cpu import CpuTraits
from .stage import Buffer, Expr, Iter, Stage, Var

SIDE = 16
"""The side of a tile: the number of 4-byte elements in a cache line."""
_ELEMENT_BITS = 32
_LEAST_VECTOR_BYTES = 32
"""If vectors are shorter than a row of the tile, LLVM uses several for each row. With AVX2 that is still 1.3 to 2.7
times as fast as element by element; with SSE it is slower for small tensors."""


def why_not_in_registers(stage: Stage, height: int, width: int, cpu: CpuTraits) -> str | None:
    """Why a tile of the copy cannot be transposed by shuffles, or None."""
    store = stage.store
    if store is None or not isinstance(store.value, TensorLoad):
        return "it does more than copy"
    if tvm.DataType(str(store.buffer.dtype)).bits != _ELEMENT_BITS:
        return f"its elements are {store.buffer.dtype}"
    if cpu.vector_bytes < _LEAST_VECTOR_BYTES:
        return f"vectors have {cpu.vector_bytes} bytes"
    return None if height == width == SIDE else f"a tile has {height} x {width} elements"


def tile(part: Stage, across: Iter, last: Iter, top: Expr, left: Expr, size: int) -> Stmt:
    """Copy the square from (top, left), which is read contiguously along ``across`` and written along ``last``."""
    store = part.store
    assert store is not None and isinstance(store.value, TensorLoad)
    target = store.buffer
    read, write = _Rows(store.value.source, size, last.var), _Rows(target, size, last.var)

    def at(i: Expr | int, j: Expr | int) -> tirx.BufferStore:
        moved = part.substituted({across.var: top + i, last.var: left + j}, []).store
        assert moved is not None
        return moved

    loads = [read.loop(lambda i, j=j: read.put(j, i, at(i, j).value)) for j in range(size)]
    binds: list[Stmt] = []
    turned = _turned([read.vector(j) for j in range(size)], binds)
    puts = [write.put_vector(i, vector) for i, vector in enumerate(turned)]
    stores = [
        write.loop(lambda j, i=i: tirx.BufferStore(target, write.get(i, j), at(i, j).indices))
        for i in range(size)
    ]
    body = build.seq(*loads, *binds, *puts, *stores)
    return build.with_buffers([*read.buffers, *write.buffers], body, "transpose")


def _turned(rows: list[Expr], binds: list[Stmt]) -> list[Expr]:
    """The vectors of the columns of ``rows``; the shuffles are appended to ``binds`` in order."""

    def bound(value: Expr) -> Expr:
        var = tirx.Var("v", value.ty)
        binds.append(tirx.Bind(var, value))
        return var

    size = len(rows)
    rows = [bound(row) for row in rows]
    step = size // 2
    while step:
        for i in (i for i in range(size) if not i & step):
            pair = [rows[i], rows[i + step]]
            low = [lane if not lane & step else size + lane - step for lane in range(size)]
            high = [lane + step if not lane & step else size + lane for lane in range(size)]
            rows[i], rows[i + step] = bound(tirx.Shuffle(pair, low)), bound(tirx.Shuffle(pair, high))
        step //= 2
    return rows


class _Rows:
    """The rows of a tile, in two temporary buffers because one would be too large for the stack."""

    def __init__(self, like: Buffer, size: int, index: Var) -> None:
        self.size, self.index = size, index
        self.buffers = [build.buffer((size * size // 2,), like, "rows") for _ in range(2)]

    def loop(self, body: Callable[[Expr], Stmt]) -> Stmt:
        return build.loop(self.size, body, self.index, ForKind.VECTORIZED)

    def put(self, row: int, lane: Expr, value: Expr) -> Stmt:
        return tirx.BufferStore(self._of(row), value, [self._start(row) + lane])

    def get(self, row: int, lane: Expr) -> Expr:
        return tirx.BufferLoad(self._of(row), [self._start(row) + lane])

    def vector(self, row: int) -> Expr:
        return tirx.BufferLoad(self._of(row), [self._ramp(row)])

    def put_vector(self, row: int, vector: Expr) -> Stmt:
        return tirx.BufferStore(self._of(row), vector, [self._ramp(row)])

    def _of(self, row: int) -> Buffer:
        return self.buffers[row * 2 // self.size]

    def _start(self, row: int) -> Expr:
        return tirx.const(row % (self.size // 2) * self.size, self.index.expr_ty().dtype)

    def _ramp(self, row: int) -> Expr:
        return tirx.Ramp(self._start(row), tirx.const(1, self.index.expr_ty().dtype), self.size)
