"""Reductions along memory: partial results in vector lanes, joined by a tree at the end.

    s = sum(x[i], i in [0, n))   ->   p[l] += x[w t + l] for every t;  p[l] += p[l + w / 2];  ...;  s = p[0]
"""

from __future__ import annotations

from tvm import sym, tirx
from tvm.ir import Expr
from tvm.ir.expr import TensorLoad
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build, injective, segments, vectors
from .machine import Machine
from .stage import Stage, static, stride

_PARTIALS = 4
"""Vectors of partial results: as many as an addition has cycles of latency."""
_COMBINERS = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)


def emit(stage: Stage, machine: Machine) -> Stmt:
    """``stage``, which has no spatial iterator left, as one number."""
    stage = injective.flattened(stage)
    if why_not_lanes(stage) is not None:
        return serial(stage)
    store, (*outer, last) = stage.store, stage.iters
    assert store is not None and stage.init is not None
    one = vectors.lanes(stage, machine)
    width = one * (_PARTIALS if last.size is None or last.size >= 2 * _PARTIALS * one else 1)
    partial = tirx.decl_buffer((width,), str(store.buffer.dtype), "partial")
    index = last.var.ty.dtype

    def combine(lane: Expr, other: Expr) -> Stmt:
        value = type(store.value)(tirx.BufferLoad(partial, [lane]), other)
        return tirx.BufferStore(partial, value, [lane])

    def update(values: dict[tirx.Var, Expr], start: Expr, count: int | Expr, kind: ForKind) -> Stmt:
        part = stage.substituted(values, [last])

        def at(lane: Expr) -> Stmt:
            here = part.substituted({last.var: start + lane}, [])
            return combine(lane if kind == ForKind.VECTORIZED else tirx.const(0, index), operand(here))

        return build.loop(count, at, last.var, kind)

    def run(values: dict[tirx.Var, Expr]) -> Stmt:
        if last.size is None:
            whole, rest = tirx.floordiv(last.extent, width), tirx.floormod(last.extent, width)
            head = build.loop(whole, lambda t: update(values, t * width, width, ForKind.VECTORIZED), last.var)
            return build.seq(head, update(values, whole * width, rest, ForKind.SERIAL))
        parts: list[Stmt] = []
        done = 0
        for step in dict.fromkeys((width, one, max((last.size - done) % one, 1))):
            turns = (last.size - done) // step
            if turns:
                start = done
                parts.append(build.loop(turns, lambda t, s=step, b=start: update(values, b + t * s, s, _kind(s)), last.var))
                done += turns * step
        return build.seq(*parts)

    def _kind(count: int) -> ForKind:
        return ForKind.VECTORIZED if count > 1 else ForKind.SERIAL

    def fold(half: int) -> Stmt:
        return build.loop(half, lambda l: combine(l, tirx.BufferLoad(partial, [l + half])), last.var, _kind(half))

    first = build.loop(width, lambda l: tirx.BufferStore(partial, stage.init.value, [l]), last.var, ForKind.VECTORIZED)
    folds = [fold(width >> k) for k in range(1, width.bit_length())]
    result = tirx.BufferStore(store.buffer, tirx.BufferLoad(partial, [tirx.const(0, index)]), store.indices)
    return build.with_buffers([partial], build.seq(first, build.nest(outer, run), *folds, result), stage.name)


def serial(stage: Stage) -> Stmt:
    """The reduction as it was written, step by step."""
    steps = build.nest(stage.iters, lambda values: stage.substituted(values, []).body)
    return steps if stage.init is None else build.seq(stage.init, steps)


def operand(stage: Stage) -> Expr:
    """What the reduction joins to its result."""
    value = stage.body.value
    return value.b if _is_result(value.a, stage) else value.a


def why_not_lanes(stage: Stage) -> str | None:
    """Why partial results in lanes would not be the reduction."""
    store = stage.store
    if store is None or not isinstance(stage.init, tirx.BufferStore) or not stage.iters:
        return "it computes several numbers at once"
    if not isinstance(store.value, _COMBINERS) or _is_result(store.value.a, stage) == _is_result(store.value.b, stage):
        return "it is not a sum, a product, a maximum or a minimum"
    if sum(load.source.same_as(store.buffer) for load in stage.loads) != 1:
        return "the operand depends on the result"
    neutral = {tirx.Add: 0, tirx.Mul: 1}.get(type(store.value))
    if neutral is not None and getattr(stage.init.value, "value", None) != neutral:
        return "it does not start from the neutral element"
    return _why_not_along_memory(stage)


def _why_not_along_memory(stage: Stage) -> str | None:
    last, analyzer = stage.iters[-1], sym.Analyzer()
    if segments.guards(stage, last.var):
        return "a condition differs from lane to lane"
    strides = [static(stride(load, last.var, analyzer)) for load in stage.loads]
    return None if all(step in (0, 1) for step in strides) else "a tensor is not contiguous along it"


def _is_result(value: Expr, stage: Stage) -> bool:
    return isinstance(value, TensorLoad) and stage.store is not None and value.source.same_as(stage.store.buffer)
