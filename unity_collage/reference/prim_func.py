"""Evaluation of the PrimFuncs of ``call_tir`` with numpy: loops over blocks of one store each.

A block is computed for its whole iteration space at once. That covers the blocks that topi writes: element-wise
operators, padding, gathers, and reductions with +, *, min, max. Other blocks that read what they have written are
refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, s_tir, tirx

from unity_collage.reference import tir_expr
from unity_collage.reference.values import Unsupported, Value, dtype_of

_REDUCERS: dict[type, np.ufunc] = {
    tirx.Add: np.add,
    tirx.Mul: np.multiply,
    tirx.Max: np.maximum,
    tirx.Min: np.minimum,
}
_LARGEST = 2**27
"""The most elements of an iteration space that is computed at once."""


@dataclass(frozen=True, slots=True)
class _Nest:
    """One block and the loops around it, outermost first."""

    loops: tuple[Any, ...]
    realize: Any
    allocated: tuple[Any, ...] = field(default=())


def why_not(func: Any) -> str | None:
    """Why numpy cannot evaluate ``func``, or None."""
    try:
        reasons = [_why_not_nest(nest) for nest in _nests(func.body, ())]
    except Unsupported as refusal:
        return str(refusal)
    return next((reason for reason in reasons if reason is not None), None)


def run(func: Any, inputs: Sequence[Value], outputs: Sequence[Any]) -> list[np.ndarray]:
    """The results of ``func`` for tensors and numbers; ``outputs`` are the tensor types of its last parameters."""
    env: dict[Any, Value] = {}
    for param, value in zip(func.params, inputs, strict=False):
        env[param] = value
        for dimension, size in zip(getattr(param, "shape", ()), np.shape(value), strict=True):
            if isinstance(dimension, ir.Var):
                env[dimension] = size
    results = func.params[len(inputs) : len(inputs) + len(outputs)]
    for param in results:
        env[param] = _empty(param, env)
    for nest in _nests(func.body, ()):
        env.update((buffer, _empty(buffer, env)) for buffer in nest.allocated)
        if nest.realize is not None:
            _run_nest(nest, env)
    return [env[param] for param in results]


def _empty(buffer: Any, env: tir_expr.Env) -> np.ndarray:
    shape = [int(tir_expr.evaluate(size, env)) for size in buffer.shape]
    return np.zeros(shape, dtype=dtype_of(buffer.dtype))


def _nests(stmt: Any, loops: tuple[Any, ...]) -> Iterator[_Nest]:
    """The blocks of one store in the order of execution, and each allocation as a nest without a block."""
    if isinstance(stmt, tirx.For):
        yield from _nests(stmt.body, (*loops, stmt))
    elif isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _nests(part, loops)
    elif isinstance(stmt, s_tir.SBlockRealize) and isinstance(stmt.block.body, tirx.BufferStore):
        yield _Nest(loops, stmt)
    elif isinstance(stmt, s_tir.SBlockRealize) and not stmt.block.iter_vars and not loops:
        yield _Nest((), None, tuple(stmt.block.alloc_buffers))
        yield from _nests(stmt.block.body, loops)
    else:
        raise Unsupported(f"call_tir: a TIR {type(stmt).__name__} has no numpy reference")


def _why_not_nest(nest: _Nest) -> str | None:
    if nest.realize is None:
        return None
    block, store = nest.realize.block, nest.realize.block.body
    if not isinstance(nest.realize.predicate, tirx.IntImm):
        return f"call_tir: block {block.name_hint} has a predicate"
    if block.init is not None and _reducer(store) is None:
        return f"call_tir: block {block.name_hint} reduces with something else than +, *, min or max"
    if _reads_own(block, store):
        return f"call_tir: block {block.name_hint} reads what it has written"
    exprs = (*nest.realize.iter_values, *store.indices, store.value)
    reasons = (tir_expr.why_not(expr) for expr in exprs)
    return next((f"call_tir: {reason}" for reason in reasons if reason is not None), None)


def _reads_own(block: Any, store: Any) -> bool:
    """Whether an element depends on others of the buffer that the block writes: they are not computed at once."""
    summed = store.value.b if block.init is not None else store.value
    loads: list[Any] = []
    tvm_ffi.structural_walk([summed, *store.indices], (ir.TensorLoad, lambda load: loads.append(load)))
    own = [load for load in loads if load.source.same_as(store.buffer)]
    if block.init is not None:
        return bool(own)
    ordered = any(var.iter_type != tirx.IterVar.DataPar for var in block.iter_vars)
    return any(ordered or not tvm_ffi.structural_equal(load.indices, store.indices) for load in own)


def _reducer(store: Any) -> np.ufunc | None:
    """The function with which a store combines the old value with a new one, or None if it just overwrites."""
    value = store.value
    if (
        type(value) in _REDUCERS
        and isinstance(value.a, ir.TensorLoad)
        and value.a.source.same_as(store.buffer)
    ):
        return _REDUCERS[type(value)]
    return None


def _run_nest(nest: _Nest, env: dict[Any, Value]) -> None:
    reason = _why_not_nest(nest)
    if reason is not None:
        raise Unsupported(reason)
    block, store = nest.realize.block, nest.realize.block.body
    extents = tuple(int(tir_expr.evaluate(loop.extent, env)) for loop in nest.loops)
    if math.prod(extents) > _LARGEST:
        raise Unsupported(f"call_tir: block {block.name_hint} has {math.prod(extents)} iterations")
    grids = _grids(nest, extents, env)
    scope = {**env, **grids}
    value = (
        _reduced(nest, extents, scope) if block.init is not None else tir_expr.evaluate(store.value, scope)
    )
    places = [np.asarray(tir_expr.evaluate(index, scope)) for index in store.indices]
    target = env[store.buffer]
    if tir_expr.is_whole(places, target.shape):
        target[...] = value
    else:
        target[tuple(places)] = value


def _grids(nest: _Nest, extents: tuple[int, ...], env: tir_expr.Env) -> dict[Any, np.ndarray]:
    """The values of the block variables, as arrays that broadcast over the axes of the loops."""
    opened: dict[Any, np.ndarray] = {}
    for axis, (loop, extent) in enumerate(zip(nest.loops, extents, strict=True)):
        along = [1] * len(extents)
        along[axis] = extent
        opened[loop.loop_var] = (np.arange(extent) + int(tir_expr.evaluate(loop.min, env))).reshape(along)
    scope = {**env, **opened}
    pairs = zip(nest.realize.block.iter_vars, nest.realize.iter_values, strict=True)
    return {var.var: np.asarray(tir_expr.evaluate(value, scope)) for var, value in pairs}


def _reduced(nest: _Nest, extents: tuple[int, ...], scope: tir_expr.Env) -> np.ndarray:
    """The new values of a reduction block, with size 1 along reduced loops; floats are reduced in double precision."""
    block, store = nest.realize.block, nest.realize.block.body
    reducer = _reducer(store)
    if reducer is None:
        raise Unsupported(f"call_tir: block {block.name_hint} is not a reduction")
    kinds = [var for var in block.iter_vars if var.iter_type == tirx.IterVar.CommReduce]
    axes = tuple(axis for var in kinds for axis, size in enumerate(scope[var.var].shape) if size > 1)
    values = np.broadcast_to(tir_expr.evaluate(store.value.b, scope), extents)
    dtype = np.float64 if np.issubdtype(values.dtype, np.floating) else None
    return reducer(
        tir_expr.evaluate(block.init.value, scope), reducer.reduce(values, axes, dtype, keepdims=True)
    )
