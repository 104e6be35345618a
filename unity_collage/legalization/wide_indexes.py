"""64-bit indexes in a PrimFunc: the sizes of Relax are int64, and TVM fuses kernels of one index type only.

Handwritten PrimFuncs often have 32-bit ones. TVM has such a pass inside of ``te.create_prim_func`` only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.tirx.buffer import BufferType

_WIDE = "int64"
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_ARITHMETIC = (
    tirx.Add,
    tirx.Sub,
    tirx.Mul,
    tirx.FloorDiv,
    tirx.FloorMod,
    tirx.Div,
    tirx.Mod,
    tirx.Min,
    tirx.Max,
    tirx.LShift,
    tirx.RShift,
    tirx.BitwiseAnd,
    tirx.BitwiseOr,
    tirx.BitwiseXor,
)
_KNOWN = (
    *_ARITHMETIC,
    *_COMPARISONS,
    tirx.And,
    tirx.Or,
    tirx.Not,
    tirx.Cast,
    tirx.Select,
    tirx.IntImm,
    tirx.FloatImm,
    tirx.Let,
    ir.Var,
    ir.Call,
    ir.TensorLoad,
    ir.TensorRegion,
)
"""The expressions that can be rewritten."""


@lru_cache(maxsize=1024)
def with_wide_indexes(prim: tirx.PrimFunc) -> tirx.PrimFunc:
    """``prim`` with int64 loops, sizes and indexes; ``prim`` itself if it has them, or if they cannot be changed."""
    buffers = _buffers(prim)
    if all(_is_wide(size) for buffer in buffers for size in buffer.shape):
        return prim
    if any(not is_plain(buffer) or not _is_static(buffer) for buffer in buffers):
        return prim  # a symbolic size has its type from the caller
    if not all(isinstance(expr, _KNOWN) for expr in _nodes(prim.body, ir.Expr)):
        return prim
    fresh: dict[Any, Any] = {buffer: plain(buffer, wide=True) for buffer in buffers}
    for var in _index_variables(prim.body):
        fresh[var] = tirx.Var(var.name, _WIDE)
    rewriter = _Rewriter(fresh)
    body = tvm_ffi.structural_map(prim.body, rewriter.callbacks())
    if rewriter.failed:
        return prim
    return tirx.PrimFunc([fresh.get(param, param) for param in prim.params], body, prim.ret_type, prim.attrs)


def _buffers(prim: tirx.PrimFunc) -> list[Any]:
    allocated = (buffer for block in _nodes(prim.body, s_tir.SBlock) for buffer in block.alloc_buffers)
    return [*(param for param in prim.params if is_buffer(param)), *allocated]


def _nodes(root: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, lambda node: found.append(node)))
    return found


def _index_variables(body: Any) -> list[Any]:
    """The variables of loops and of the iterators of blocks that are not int64 yet."""
    loops = [loop.loop_var for loop in _nodes(body, tirx.For)]
    iterators = [it.var for block in _nodes(body, s_tir.SBlock) for it in block.iter_vars]
    return [var for var in (*loops, *iterators) if not _is_wide(var)]


def is_buffer(param: tirx.Var) -> bool:
    """Whether a parameter of a PrimFunc is a tensor; others are numbers."""
    return isinstance(param.ty, BufferType)


def is_plain(buffer: tirx.Buffer) -> bool:
    """Whether a buffer is memory in row-major order: no strides, offset, layout or scope of its own."""
    return tvm_ffi.structural_equal(buffer.ty, plain(buffer).ty, map_free_vars=True)


def is_row_major(buffer: tirx.Buffer) -> bool:
    """Whether a buffer is memory in row-major order, even if a layout expresses that."""
    with_layout = tirx.decl_buffer(buffer.shape, str(buffer.dtype), buffer.name)
    return is_plain(buffer) or tvm_ffi.structural_equal(buffer.ty, with_layout.ty, map_free_vars=True)


def plain(buffer: Any, wide: bool = False) -> Any:
    """A new buffer of the same sizes in row-major order; ``wide``: with int64 sizes."""
    row_major: Any = None
    shape = [_wide(size) if wide else size for size in buffer.shape]
    return tirx.decl_buffer(shape, str(buffer.dtype), buffer.name, layout=row_major)


def _is_static(buffer: tirx.Buffer) -> bool:
    return all(isinstance(size, tirx.IntImm) for size in buffer.shape)


def _is_wide(expr: Any) -> bool:
    return _dtype(expr) == _WIDE


def _dtype(expr: Any) -> str:
    return str(expr.ty.dtype)


def _wide(expr: Any) -> Any:
    """``expr`` as int64; other types than integers have no place in an index."""
    if _is_wide(expr):
        return expr
    return tirx.IntImm(_WIDE, expr.value) if isinstance(expr, tirx.IntImm) else tirx.Cast(_WIDE, expr)


def _index(expr: Any) -> Any:
    """An index: 32-bit numbers become int64; a 32-bit value that is read from memory stays as it is."""
    return _wide(expr) if isinstance(expr, tirx.IntImm) else expr


class _Rewriter:
    """Rewrites nodes after their operands; ``fresh`` has the new variables and buffers."""

    def __init__(self, fresh: dict[Any, Any]) -> None:
        self._fresh = fresh
        self.failed = False
        """Whether an expression mixes types in a way that is not handled. TVM's walk cannot be left by an exception."""

    def callbacks(self) -> list[tuple[Any, Any]]:
        return [
            (tirx.Var, lambda var: self._fresh.get(var, var)),
            ((*_ARITHMETIC, *_COMPARISONS), lambda expr: type(expr)(*self._pair(expr.a, expr.b))),
            (tirx.Select, self._selected),
            (ir.Call, self._called),
            (ir.TensorLoad, lambda load: tirx.BufferLoad(load.source, [*map(_index, load.indices)])),
            (tirx.BufferStore, _stored),
            (tirx.For, _looped),
            (ir.Range, _bounded),
            ((tirx.Bind, tirx.Let), self._bound),
            (s_tir.SBlockRealize, _realized),
        ]

    def _pair(self, first: Any, second: Any) -> tuple[Any, Any]:
        """Two operands of one type, where one of them may have become int64."""
        types = {_dtype(first), _dtype(second)}
        if len(types) == 1:
            return first, second
        if types == {"int32", _WIDE}:
            return _wide(first), _wide(second)
        self.failed = True
        return first, first

    def _selected(self, expr: Any) -> Any:
        return tirx.Select(expr.condition, *self._pair(expr.true_value, expr.false_value))

    def _called(self, call: Any) -> Any:
        if str(getattr(call.op, "name", "")).rpartition(".")[2] == "if_then_else":
            return tirx.if_then_else(call.args[0], *self._pair(call.args[1], call.args[2]))
        widened = any(_is_wide(arg) for arg in call.args if isinstance(arg, ir.Expr))
        self.failed |= widened and not _is_wide(call)
        return call

    def _bound(self, named: Any) -> Any:
        self.failed |= _dtype(named.value) != _dtype(named.var)
        return named


def _stored(store: Any) -> Any:
    value, wanted = store.value, str(store.buffer.dtype)
    if _dtype(value) != wanted:
        value = tirx.Cast(wanted, value)
    return tirx.BufferStore(store.buffer, value, [*map(_index, store.indices)])


def _bounded(bounds: Any) -> Any:
    extent = sym.Analyzer().simplify(_wide(bounds.extent))
    return ir.Range.from_min_extent(sym.Analyzer().simplify(_wide(bounds.min)), extent)


def _looped(loop: Any) -> Any:
    low, extent = _wide(loop.min), _wide(loop.extent)
    return tirx.For(
        loop.loop_var, low, extent, loop.kind, loop.body, loop.thread_binding, loop.annotations, loop.step
    )


def _realized(realize: Any) -> Any:
    values = [_wide(value) for value in realize.iter_values]
    return s_tir.SBlockRealize(values, realize.predicate, realize.block)
