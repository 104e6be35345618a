"""Reading what topi writes: PrimFuncs that fill their output with one expression of the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax, s_tir, tirx
from tvm_ffi import structural_equal

from .scope import Call, Expr, Scope


@dataclass(frozen=True, slots=True)
class Store:
    """``output[index] = value`` for every index of the output."""

    inputs: tuple[Any, ...]
    """The parameters before the output."""
    output: Any
    index: tuple[Any, ...]
    """One variable a dimension."""
    value: Any


def operands_of(call: Call) -> list[Expr]:
    """The arguments that a ``call_tir`` passes to its PrimFunc."""
    operands = call.args[1]
    assert isinstance(operands, relax.Tuple)
    return list(operands.fields)


def store_of(call: Call, scope: Scope) -> Store | None:
    """The one store of the PrimFunc that a ``call_tir`` calls, or None if it does more."""
    func = scope.prim_func(call.args[0])
    if func is None or len(call.args) != 2 or len(func.params) != 1 + len(operands_of(call)):
        return None
    loops, realize = _innermost(func.body)
    if realize is None or realize.block.init is not None:
        return None
    store = realize.block.body
    if not isinstance(store, tirx.BufferStore):
        return None
    index = tuple(iterator.var for iterator in realize.block.iter_vars)
    whole = _equal(realize.iter_values, [loop.loop_var for loop in loops]) and _equal(store.indices, index)
    if not whole or not store.buffer.same_as(func.params[-1]) or not _covers(loops, store.buffer):
        return None
    return Store(tuple(func.params[:-1]), store.buffer, index, store.value)


def _innermost(stmt: Any) -> tuple[list[Any], Any]:
    """The loops of a perfect nest and the block inside it; the root block is passed through."""
    loops: list[Any] = []
    realize = None
    while realize is None or not realize.iter_values:
        if isinstance(stmt, s_tir.SBlockRealize):
            realize, stmt = stmt, stmt.block.body
        elif isinstance(stmt, tirx.For):
            loops.append(stmt)
            stmt = stmt.body
        else:
            break
    return loops, realize


def _equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(a.same_as(b) for a, b in zip(left, right, strict=True))


def _covers(loops: Sequence[Any], buffer: Any) -> bool:
    """Whether the loops run over the whole of a buffer."""
    if len(loops) != len(buffer.shape):
        return False
    return all(
        isinstance(loop.min, tirx.IntImm) and int(loop.min) == 0 and structural_equal(loop.extent, size)
        for loop, size in zip(loops, buffer.shape, strict=True)
    )


def loaded(expr: Any) -> Any:
    """The parameter that an expression loads from, or None if it is not a load."""
    return expr.source if isinstance(expr, ir.TensorLoad) else None


def is_load_at(expr: Any, index: Sequence[Any]) -> bool:
    """Whether ``expr`` is a load at just that index."""
    return isinstance(expr, ir.TensorLoad) and _equal(expr.indices, index)
