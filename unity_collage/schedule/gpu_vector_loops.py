"""The loops of threads that compute some neighbours each (:mod:`.gpu_vectors`).

Each thread moves vectors from memory to registers, computes lane by lane, and moves its results as vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build
from .stage import Buffer, Expr, Iter, Stage, Var, substitute

_THREADS, _MORE_THREADS = 256, 512
"""The threads of a block, and of a block with two results for each thread, since starting a block takes time."""
_UNROLLED = 64
"""A window of up to this many elements has no loops."""

Values = dict[Var, Expr]


@dataclass(frozen=True)
class VectorPart:
    """A stage of one thread: values that it moves to registers as vectors, and what it stores for each lane."""

    stage: Stage
    within: Iter
    """The lanes."""
    copies: tuple[tuple[Buffer, Expr], ...]
    """Registers, and the values of their lanes."""


@dataclass(frozen=True)
class Fork:
    """A stage of one thread that does one of two things, such as to copy from one of two tensors that it joins."""

    condition: Expr
    holds: VectorPart | Fork
    fails: VectorPart | Fork

    @property
    def leaves(self) -> int:
        return sum(side.leaves if isinstance(side, Fork) else 1 for side in (self.holds, self.fails))


class Thread:
    """The statements of one thread, which computes ``width`` results.

    ``reduction`` is what ``result`` reads instead of its temporary, if there is one.
    """

    def __init__(self, result: VectorPart | Fork, reduction: VectorPart | None, width: int) -> None:
        self._result, self._reduction, self._width = result, reduction, width
        store = None if reduction is None else reduction.stage.store
        self._summed = None if store is None else store.buffer
        self._sum = None if store is None else registers(width, store.buffer)

    def body(self, values: Values) -> Stmt:
        """The statements, given the values of all axes but the lanes."""
        written = self._written(self._result, values)
        if self._reduction is None or self._sum is None:
            return written
        buffers = [self._sum, *(buffer for buffer, _ in self._reduction.copies)]
        return build.with_buffers(
            buffers, build.seq(*self._reduced(self._reduction, self._sum, values), written), "thread"
        )

    def _written(self, result: VectorPart | Fork, values: Values) -> Stmt:
        """The statements that move the results to memory."""
        if isinstance(result, Fork):
            holds, fails = (self._written(side, values) for side in (result.holds, result.fails))
            return tirx.IfThenElse(substitute(result.condition, values), holds, fails)
        store = result.stage.store
        assert store is not None
        out = registers(self._width, store.buffer)

        def moved(lane: Expr) -> Stmt:
            at = values | {result.within.var: lane}
            indices = [substitute(index, at) for index in store.indices]
            return tirx.BufferStore(store.buffer, tirx.BufferLoad(out, [lane]), indices)

        steps = [
            *self._copied(result, values),
            self._lanes(result, out, lambda lane: self._value(result, values, lane)),
            self._vector(result, moved),
        ]
        return build.with_buffers(
            [out, *(buffer for buffer, _ in result.copies)], build.seq(*steps), "results"
        )

    def _reduced(self, part: VectorPart, total: Buffer, values: Values) -> list[Stmt]:
        init, window = part.stage.init, part.stage.reduction
        assert isinstance(init, tirx.BufferStore)

        def step(of_window: Values) -> Stmt:
            at = values | of_window
            added = self._lanes(part, total, lambda lane: self._value(part, at, lane))
            return build.seq(*self._copied(part, at), added)

        kind = ForKind.UNROLLED if (build.product(window) or 1) <= _UNROLLED else ForKind.SERIAL
        return [self._lanes(part, total, lambda _: init.value), build.nest(window, step, kind)]

    def _copied(self, part: VectorPart, values: Values) -> list[Stmt]:
        """The vectors of a part, moved to registers."""
        steps: list[Stmt] = []
        for buffer, value in part.copies:

            def moved(lane: Expr, buffer: Buffer = buffer, value: Expr = value) -> Stmt:
                at = values | {part.within.var: lane}
                return tirx.BufferStore(buffer, substitute(value, at), [lane])

            steps.append(self._vector(part, moved))
        return steps

    def _value(self, part: VectorPart, values: Values, lane: Expr) -> Expr:
        """What a part stores for one lane; it reads the sum from registers."""
        store = part.stage.store
        assert store is not None
        value = substitute(store.value, values | {part.within.var: lane})
        summed, total = self._summed, self._sum
        if summed is None or total is None:
            return value

        def load(node: TensorLoad) -> Expr:
            return tirx.BufferLoad(total, [lane]) if node.source.same_as(summed) else node

        return tvm_ffi.structural_map(value, (TensorLoad, load))

    def _lanes(self, part: VectorPart, into: Buffer, value: Callable[[Expr], Expr]) -> Stmt:
        """``into[lane] = value(lane)`` for all lanes."""

        def one(lane: Expr) -> Stmt:
            return tirx.BufferStore(into, value(lane), [lane])

        return build.loop(self._width, one, part.within.var, ForKind.UNROLLED)

    def _vector(self, part: VectorPart, body: Callable[[Expr], Stmt]) -> Stmt:
        """``body`` for all lanes at once."""
        return build.loop(self._width, body, part.within.var, ForKind.VECTORIZED)


def registers(width: int, like: Buffer) -> Buffer:
    """A thread's registers for ``width`` numbers of the type of ``like``."""
    return tirx.decl_buffer((width,), str(like.dtype), "registers", scope="local")


def itemsize(buffer: Buffer) -> int:
    """The bytes of an element."""
    return int(tvm.DataType(str(buffer.dtype)).itemsize)


def on_threads(iters: Sequence[Iter], width: int, body: Callable[[Values], Stmt]) -> Stmt:
    """``body`` for each step of ``iters``, one for each thread, which computes ``width`` results."""
    total, like = build.product(iters) or 1, iters[-1].var
    threads = _MORE_THREADS if width == 2 else _THREADS
    dtype = like.expr_ty().dtype

    def launched(count: int, tag: str, inner: Callable[[Expr], Stmt]) -> Stmt:
        var = tirx.Var(tag.partition("Idx")[0], like.ty)
        thread = tirx.IterVar(None, tirx.Var(tag, like.ty), tirx.IterVar.ThreadIndex, tag)
        zero, extent = tirx.const(0, dtype), tirx.const(count, dtype)
        return tirx.For(var, zero, extent, ForKind.THREAD_BINDING, inner(var), thread_binding=thread)

    def of_thread(number: Expr) -> Stmt:
        step = body(build.unfused(iters, number))
        return (
            step if total % threads == 0 else tirx.IfThenElse(number < tirx.const(total, dtype), step, None)
        )

    return launched(
        -(-total // threads),
        "blockIdx.x",
        lambda block: launched(threads, "threadIdx.x", lambda thread: of_thread(block * threads + thread)),
    )
