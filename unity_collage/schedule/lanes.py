"""Reductions along memory: partial results in vector lanes, joined by a tree at the end.

s = sum(x[i], i in [0, n))   ->   p[l] += x[w t + l] for every t;  p[l] += p[l + w / 2];  ...;  s = p[0]
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import sym, tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build, segments, vectors
from .axes import flattened
from .machine import Machine
from .stage import Expr, Stage, Var, static, stride

_PARTIALS = 4
"""Vectors of partial results: as many as an addition has cycles of latency."""
_COMBINERS = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)


def emit(stage: Stage, machine: Machine) -> Stmt:
    """``stage``, which has no spatial iterator left, as one number."""
    stage = flattened(stage)
    return serial(stage) if why_not_lanes(stage) is not None else _Lanes(stage, machine).emit()


class _Lanes:
    """The partial results of one reduction, in ``width`` lanes of ``one``-lane vectors."""

    def __init__(self, stage: Stage, machine: Machine) -> None:
        store, init = stage.store, stage.init
        assert store is not None and isinstance(init, tirx.BufferStore)
        self.stage, self.store, self.start = stage, store, init.value
        *self.outer, self.last = stage.iters
        self.one = vectors.lanes(stage, machine)
        long = self.last.size is None or self.last.size >= 2 * _PARTIALS * self.one
        self.width = self.one * (_PARTIALS if long else 1)
        self.partial = build.buffer((self.width,), store.buffer, "partial")
        self.zero = tirx.const(0, self.last.var.ty.dtype)

    def emit(self) -> Stmt:
        first = self._loop(self.width, lambda lane: tirx.BufferStore(self.partial, self.start, [lane]))
        folds = [self._fold(self.width >> k) for k in range(1, self.width.bit_length())]
        result = tirx.BufferStore(
            self.store.buffer, tirx.BufferLoad(self.partial, [self.zero]), self.store.indices
        )
        body = build.seq(first, build.nest(self.outer, self._run), *folds, result)
        return build.with_buffers([self.partial], body, self.stage.name)

    def _run(self, values: dict[Var, Expr]) -> Stmt:
        """The whole of the last axis: in full width, then in single vectors, then what is left."""
        extent, width = self.last.extent, self.width
        part = self.stage.substituted(values, [self.last])
        if self.last.size is None:
            whole, rest = tirx.floordiv(extent, width), tirx.floormod(extent, width)
            head = build.loop(whole, lambda turn: self._update(part, turn * width, width), self.last.var)
            tail = build.loop(rest, lambda i: self._update(part, whole * width + i, 1), self.last.var)
            return build.seq(head, tail)
        parts: list[Stmt] = []
        done = 0
        for step in (width, self.one, self.last.size % self.one):
            turns = (self.last.size - done) // step if step else 0
            if turns:
                parts.append(self._turns(part, done, step, turns))
                done += turns * step
        return build.seq(*parts)

    def _turns(self, part: Stage, start: int, step: int, turns: int) -> Stmt:
        return build.loop(turns, lambda turn: self._update(part, start + turn * step, step), self.last.var)

    def _update(self, part: Stage, start: Expr, count: int) -> Stmt:
        def at(lane: Expr) -> Stmt:
            here = part.substituted({self.last.var: start + lane}, [])
            return self._combine(lane, _operand(here))

        return self._loop(count, at)

    def _fold(self, half: int) -> Stmt:
        return self._loop(
            half, lambda lane: self._combine(lane, tirx.BufferLoad(self.partial, [lane + half]))
        )

    def _combine(self, lane: Expr, other: Expr) -> Stmt:
        value = type(self.store.value)(tirx.BufferLoad(self.partial, [lane]), other)
        return tirx.BufferStore(self.partial, value, [lane])

    def _loop(self, count: int, body: Callable[[Expr], Stmt]) -> Stmt:
        return build.loop(count, body, self.last.var, ForKind.VECTORIZED)


def serial(stage: Stage) -> Stmt:
    """The reduction as it was written, step by step."""
    steps = build.nest(stage.iters, lambda values: stage.substituted(values, []).body)
    return steps if stage.init is None else build.seq(stage.init, steps)


def _operand(stage: Stage) -> Expr:
    """What the reduction joins to its result."""
    assert stage.store is not None
    value = stage.store.value
    return value.b if _is_result(value.a, stage) else value.a


def why_not_lanes(stage: Stage) -> str | None:
    """Why partial results in lanes would not be the reduction."""
    return why_not_partial(stage) or _why_not_along_memory(stage)


def why_not_partial(stage: Stage) -> str | None:
    """Why partial results, each from the start and joined at the end, would not be the reduction."""
    store = stage.store
    if store is None or not isinstance(stage.init, tirx.BufferStore) or not stage.iters:
        return "it computes several numbers at once"
    if not isinstance(store.value, _COMBINERS) or (
        _is_result(store.value.a, stage) == _is_result(store.value.b, stage)
    ):
        return "it is not a sum, a product, a maximum or a minimum"
    if sum(load.source.same_as(store.buffer) for load in stage.loads) != 1:
        return "the operand depends on the result"
    neutral = {tirx.Add: 0, tirx.Mul: 1}.get(type(store.value))
    if neutral is not None and getattr(stage.init.value, "value", None) != neutral:
        return "it does not start from the neutral element"
    return None


def _why_not_along_memory(stage: Stage) -> str | None:
    last, analyzer = stage.iters[-1], sym.Analyzer()
    if segments.guards(stage, last.var):
        return "a condition differs from lane to lane"
    strides = [static(stride(load, last.var, analyzer)) for load in stage.loads]
    return None if all(step in (0, 1) for step in strides) else "a tensor is not contiguous along it"


def _is_result(value: Expr, stage: Stage) -> bool:
    return (
        isinstance(value, TensorLoad) and stage.store is not None and value.source.same_as(stage.store.buffer)
    )
