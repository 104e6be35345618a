"""Reductions of contiguous elements: partial results in vector lanes, combined by a tree at the end.

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
from .cpu import CpuTraits
from .stage import Expr, Stage, Var, static, stride

_PARTIALS = 4
"""Vectors of partial results: as many as an addition has cycles of latency, so that no addition waits for another."""
_COMBINERS = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)


def emit(stage: Stage, cpu: CpuTraits) -> Stmt:
    """The loops of ``stage``, which has no spatial iterator left and computes one number."""
    stage = flattened(stage)
    return serial(stage) if why_not_lanes(stage) is not None else _Lanes(stage, cpu).emit()


class _Lanes:
    """The partial results of one reduction: some vectors of ``one`` lanes.

    Each vector is a separate buffer and is always updated as a whole, because LLVM splits a buffer that is accessed in
    parts. The exceptions are rows that are shorter than a vector or of unknown length.
    """

    def __init__(self, stage: Stage, cpu: CpuTraits) -> None:
        store, init = stage.store, stage.init
        assert store is not None and isinstance(init, tirx.BufferStore)
        assert isinstance(store.value, _COMBINERS)
        self.stage, self.store, self.start = stage, store, init.value
        self.combiner = type(store.value)
        *self.outer, self.last = stage.iters
        self.one = vectors.lanes(stage, cpu)
        long = self.last.size is None or self.last.size >= 2 * _PARTIALS * self.one
        count = _PARTIALS if long else 1
        self.partials = [build.buffer((self.one,), store.buffer, "partial") for _ in range(count)]
        self.zero = tirx.const(0, self.last.var.expr_ty().dtype)

    def emit(self) -> Stmt:
        starts = [
            self._loop(self.one, lambda lane, into=partial: tirx.BufferStore(into, self.start, [lane]))
            for partial in self.partials
        ]
        joins = [self._join(0, k, self.one, 0) for k in range(1, len(self.partials))]
        folds = [self._join(0, 0, self.one >> k, self.one >> k) for k in range(1, self.one.bit_length())]
        result = tirx.BufferStore(
            self.store.buffer, tirx.BufferLoad(self.partials[0], [self.zero]), self.store.indices
        )
        body = build.seq(*starts, build.nest(self.outer, self._run), *joins, *folds, result)
        return build.with_buffers(self.partials, body, self.stage.name)

    def _run(self, values: dict[Var, Expr]) -> Stmt:
        """The whole last axis: with all vectors at a time, then with one, then with one that ends where the axis
        ends."""
        extent, one = self.last.extent, self.one
        part = self.stage.substituted(values, [self.last])
        if self.last.size is None:
            width = one * len(self.partials)
            whole, rest = tirx.floordiv(extent, width), tirx.floormod(extent, width)
            head = build.loop(
                whole, lambda turn: self._updates(part, turn * width, len(self.partials)), self.last.var
            )
            tail = build.loop(rest, lambda i: self._update(part, whole * width + i, 1), self.last.var)
            return build.seq(head, tail)
        if self.last.size < one:
            return self._update(part, self.zero, self.last.size)
        parts: list[Stmt] = []
        done = 0
        for count in dict.fromkeys((len(self.partials), 1)):
            turns = (self.last.size - done) // (one * count)
            if turns:
                parts.append(self._turns(part, done, count, turns))
                done += turns * one * count
        if rest := self.last.size - done:
            parts.append(self._update(part, self.zero + (self.last.size - one), one, one - rest))
        return build.seq(*parts)

    def _turns(self, part: Stage, start: int, count: int, turns: int) -> Stmt:
        step = self.one * count
        return build.loop(turns, lambda turn: self._updates(part, start + turn * step, count), self.last.var)

    def _updates(self, part: Stage, start: Expr, count: int) -> Stmt:
        """Combine the next vectors of elements with the first ``count`` partial results, one each."""
        return build.seq(*(self._update(part, start + k * self.one, self.one, into=k) for k in range(count)))

    def _update(self, part: Stage, start: Expr, count: int, first: int = 0, into: int = 0) -> Stmt:
        """Combine ``count`` elements with a partial result, without those before ``first``, which were combined
        before."""

        def at(lane: Expr) -> Stmt:
            operand = _operand(part.substituted({self.last.var: start + lane}, []))
            new = operand if first == 0 else tirx.Select(lane >= first, operand, self.start)
            return self._combine(into, lane, new)

        return self._loop(count, at)

    def _join(self, into: int, source: int, count: int, begin: int) -> Stmt:
        """Combine ``count`` lanes of partial result ``source``, from ``begin`` on, with the first lanes of ``into``."""
        return self._loop(
            count,
            lambda lane: self._combine(into, lane, tirx.BufferLoad(self.partials[source], [lane + begin])),
        )

    def _combine(self, into: int, lane: Expr, other: Expr) -> Stmt:
        value = self.combiner(tirx.BufferLoad(self.partials[into], [lane]), other)
        return tirx.BufferStore(self.partials[into], value, [lane])

    def _loop(self, count: int, body: Callable[[Expr], Stmt]) -> Stmt:
        return build.loop(count, body, self.last.var, ForKind.VECTORIZED)


def serial(stage: Stage) -> Stmt:
    """The original reduction, element by element."""
    steps = build.nest(stage.iters, lambda values: stage.substituted(values, []).body)
    return steps if stage.init is None else build.seq(stage.init, steps)


def _operand(stage: Stage) -> Expr:
    """The operand that the reduction combines with its result."""
    assert stage.store is not None
    value = stage.store.value
    assert isinstance(value, _COMBINERS)
    return value.b if _is_result(value.a, stage) else value.a


def why_not_lanes(stage: Stage) -> str | None:
    """Why the reduction cannot be computed by partial results in lanes, or None."""
    return why_not_partial(stage) or _why_not_along_memory(stage)


def why_not_partial(stage: Stage) -> str | None:
    """Why the reduction cannot be computed by partial results that are combined at the end, or None.

    Each of them begins with the initial value. So that must be the neutral element, unless the reduction is idempotent.
    """
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
