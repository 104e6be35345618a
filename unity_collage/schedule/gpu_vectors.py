"""Vectors on a GPU: each thread computes a few neighbours, and moves them by one access of up to 16 bytes.

    y[n, h, w, c] = relu(sum over i, j of x[n, h + i, w + j, c] * k[i, j, c])
        ->  each thread: s[0:8] = 0;  for i, j: v[0:8] = x[n, h + i, w + j, 8 * c: 8 * c + 8];  s[l] += v[l] * ...

These are elementwise kernels, and poolings and depthwise convolutions with channels last. Only copies between memory
and registers are vectors. Arithmetic goes lane by lane: CUDA has no wider one than that of two float16. Neighbouring
threads move neighbouring vectors, which NVIDIA's "CUDA C++ Best Practices Guide" calls coalesced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Call, Range
from tvm.ir.expr import TensorLoad
from tvm.target import Target
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build, tile
from .axes import axis, flattened, with_value
from .read import stages_of
from .stage import (
    Access,
    Buffer,
    Expr,
    Func,
    Iter,
    Stage,
    Var,
    buffer_of,
    expensive_calls,
    nodes,
    op_name,
    static,
    stride,
    substitute,
)

_BYTES = 16
"""The widest access of a thread."""
_WIDTHS = (8, 4, 2)
"""How many results a thread may compute; more need too many registers."""
_BUSY = 1 << 15
"""Threads that keep a GPU busy. With fewer, each one computes fewer results."""
_THREADS = 128
"""The threads of a block."""
_UNROLLED = 64
"""A window of up to this many elements has no loops."""
_TYPES = frozenset({"float16", "bfloat16", "float32", "int32"})
"""What is moved in vectors."""
_SMALL, _LARGEST, _ENOUGH = 64, 256, 1 << 14
"""A thread goes through a window of ``_SMALL`` elements, or of ``_LARGEST`` if there are ``_ENOUGH`` results."""

Values = dict[Var, Expr]


class Vectors:
    """The rule. ``apply`` is the interface of dlight's."""

    def apply(self, func: Func, _target: Target, _tunable: bool) -> Func | None:
        """``func`` in vectors; None if it is neither elementwise nor a window, or if its accesses are no vectors."""
        work = work_of(func)
        return None if isinstance(work, str) else in_vectors(func, work)


@dataclass(frozen=True)
class Work:
    """A stage that writes results, and the reduction that it takes them from, if there is one, over the same axes."""

    result: Stage
    reduction: Stage | None

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (self.result,) if self.reduction is None else (self.reduction, self.result)

    @property
    def lane(self) -> Iter:
        """The axis along which results are neighbours."""
        return self.result.iters[-1]

    @property
    def sum(self) -> Buffer | None:
        """What the reduction writes."""
        store = None if self.reduction is None else self.reduction.store
        return None if store is None else store.buffer

    def loads(self, stage: Stage) -> list[TensorLoad]:
        """What ``stage`` reads from memory."""
        return [load for load in stage.loads if self.sum is None or not load.source.same_as(self.sum)]


def work_of(func: Func) -> Work | str:
    """What ``func`` computes, or the reason why it is no work for vectors."""
    stages = stages_of(_inlined(func))
    if isinstance(stages, str):
        return stages
    first, *rest = stages
    if len(rest) > 1 or any(stage.init is not None for stage in rest):
        return "it has several reductions or results"
    if any(it.size is None for stage in stages for it in stage.iters):
        return "its sizes are not known"
    if any(nodes(stage.body, tirx.Let) for stage in stages):
        return "it names a value within an expression"
    if first.init is not None:
        pair = tile.paired(first, rest[0] if rest else None)
        if isinstance(pair, str):
            return pair
        work = Work(pair[1], pair[0])
    elif rest:
        return "it has several results"
    else:
        work = Work(flattened(first), None)
    if work.result.store is None or not work.result.iters:
        return "it does not write one element for each step of an axis"
    return _why_not_window(work) or work


def _why_not_window(work: Work) -> str | None:
    if work.reduction is None:
        return None
    window, results = build.product(work.reduction.reduction) or 1, build.product(work.result.iters) or 1
    if window <= _SMALL or (window <= _LARGEST and results >= _ENOUGH):
        return None
    return f"more than one thread reduces {window} elements"


def _inlined(func: Func) -> Func:
    """``func`` whose elementwise stages are computed where they are read."""
    schedule = s_tir.Schedule(func, debug_mask="none", error_render_level="none")
    for found in schedule.get_child_blocks(schedule.get_sblock("root")):
        readers = [schedule.get(reader) for reader in schedule.get_consumers(found)]
        block = schedule.get(found)
        again = any(reader.init is not None for reader in readers) and expensive_calls(block.body)
        if block.init is None and readers and not again:
            schedule.compute_inline(found)
    return schedule.mod["main"]


def in_vectors(func: Func, work: Work) -> Func | None:
    """``func`` with the loops of ``work`` in the widest vectors that leave enough threads; None if it has none."""
    for width in _widths(work):
        lane, within = axis(work.lane.var, (work.lane.size or 1) // width), axis(work.lane.var, width)
        parts = [_part(work, stage, lane, within) for stage in work.stages]
        if not any(isinstance(part, str) for part in parts):
            found = [part for part in parts if not isinstance(part, str)]
            thread = _Thread(work, found, width)
            body = _on_threads([*work.result.iters[:-1], lane], thread.body)
            return func.with_body(s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body)))
    return None


def _widths(work: Work) -> list[int]:
    """The numbers of neighbours to try, the best one first."""
    buffers = [load.source for stage in work.stages for load in work.loads(stage)]
    stores = [store.buffer for store in work.result.stores]
    widest = _BYTES // min(_itemsize(buffer) for buffer in (*buffers, *stores))
    fits = [width for width in _WIDTHS if width <= widest and (work.lane.size or 1) % width == 0]
    results = build.product(work.result.iters) or 1
    busy = [width for width in fits if results // width >= _BUSY]
    return busy + [width for width in reversed(fits) if width not in busy]


@dataclass(frozen=True)
class Part:
    """A stage of one thread: values that it moves to registers as vectors, and what it stores for each lane."""

    stage: Stage
    within: Iter
    """The lanes."""
    copies: tuple[tuple[Buffer, Expr], ...]
    """Registers, and the values of its lanes."""


def _part(work: Work, stage: Stage, lane: Iter, within: Iter) -> Part | str:
    """``stage`` over ``lane`` and ``within``, or the reason why its accesses along ``within`` are no vectors."""
    old = work.lane.var
    iters = [new for it in stage.iters for new in ((lane, within) if it.var.same_as(old) else (it,))]
    stage = stage.substituted({old: lane.var * within.extent + within.var}, iters)
    analyzer = sym.Analyzer()
    for it in iters:
        analyzer.bind(it.var, Range.from_min_extent(tirx.const(0, it.var.expr_ty().dtype), it.extent))
    stage = _simplified(stage, analyzer)
    is_vector = _vectors(within.var, within.size or 1, analyzer)
    store = stage.store
    if store is None or (stage.init is None and not is_vector(store)):
        return "its results are not next to each other"
    strides = [stride(load, within.var, analyzer) for load in work.loads(stage)]
    if any(step is None or static(step) not in (0, 1) for step in strides):
        return "neighbours read elements that are neither one nor neighbours"
    copies: list[tuple[Buffer, Expr]] = []
    for load, vector in _moved(work, stage, within.var, is_vector):
        registers = _registers(within.size or 1, str(load.source.dtype))
        copies.append((registers, vector))
        stage = with_value(stage, load, tirx.BufferLoad(registers, [within.var]))
    if work.reduction is None and not copies:
        return "it reads no vectors"
    return Part(stage, within, tuple(copies))


def _simplified(stage: Stage, analyzer: sym.Analyzer) -> Stage:
    """``stage`` whose indices and conditions are simplified, so that they show whether they depend on the lane."""

    def load(node: TensorLoad) -> Expr:
        return tirx.BufferLoad(node.source, [analyzer.simplify(index) for index in node.indices])

    def choice(node: Call) -> Expr:
        if op_name(node) != "if_then_else":
            return node
        condition = tvm_ffi.structural_map(node.args[0], (tirx.LE, at_most))
        return tirx.if_then_else(analyzer.simplify(condition), node.args[1], node.args[2])

    def at_most(node: tirx.LE) -> Expr:
        # TVM makes c < 3 of ``8 * c + lane < 24``, and nothing of ``24 <= 8 * c + lane``.
        return analyzer.simplify(tirx.Not(analyzer.simplify(tirx.LT(node.b, node.a))))

    body = tvm_ffi.structural_map(stage.body, [(TensorLoad, load), (Call, choice)])
    return replace(stage, body=body)


def _vectors(lane: Var, width: int, analyzer: sym.Analyzer) -> Callable[[Access], bool]:
    """Whether an access goes through ``width`` neighbours from a multiple of ``width`` on."""

    def is_vector(access: Access) -> bool:
        step = stride(access, lane, analyzer)
        if str(buffer_of(access).dtype) not in _TYPES or step is None or static(step) != 1:
            return False
        flat: Expr = tirx.const(0, lane.expr_ty().dtype)
        for index, extent in zip(access.indices, buffer_of(access).shape, strict=True):
            flat = flat * extent + index
        first = substitute(flat, {lane: tirx.const(0, lane.expr_ty().dtype)})
        begin = analyzer.modular_set(analyzer.simplify(first))
        return begin.coeff % width == 0 and begin.base % width == 0

    return is_vector


def _moved(
    work: Work, stage: Stage, lane: Var, is_vector: Callable[[Access], bool]
) -> Iterator[tuple[TensorLoad, Expr]]:
    """The loads that are moved as vectors, and the vectors: zeros where the stage does not read.

    A load is not moved where a condition on it differs from lane to lane.
    """
    assert stage.store is not None
    found: list[tuple[TensorLoad, list[Expr | None]]] = [(load, []) for load in work.loads(stage)]

    def visit(value: Expr, condition: Expr | None) -> None:
        for load, conditions in found:
            if value.same_as(load):
                conditions.append(condition)
        if isinstance(value, Call) and op_name(value) == "if_then_else":
            test, *sides = value.args
            visit(test, condition)
            for side, holds in zip(sides, (test, tirx.Not(test)), strict=True):
                visit(side, holds if condition is None else tirx.And(condition, holds))
            return
        for operand in _operands(value):
            visit(operand, condition)

    visit(stage.store.value, None)
    for load, conditions in found:
        if not is_vector(load):
            continue
        if any(condition is None for condition in conditions):
            yield load, load
        elif not any(var.same_as(lane) for var in nodes(conditions, Var)):
            known = [condition for condition in conditions if condition is not None]
            condition = reduce(tirx.Or, known)
            yield load, tirx.if_then_else(condition, load, tirx.const(0, str(load.source.dtype)))


_OPERANDS = ("args", "indices", "value", "a", "b", "condition", "true_value", "false_value")
"""The fields of expressions with their operands, but for those of Let."""


def _operands(value: Expr) -> list[Expr]:
    """The expressions that ``value`` computes with."""
    fields = [getattr(value, name, None) for name in _OPERANDS]
    each = [field if isinstance(field, Iterable) else [field] for field in fields]
    return [operand for field in each for operand in field if isinstance(operand, Expr)]


class _Thread:
    """The statements of one thread."""

    def __init__(self, work: Work, parts: Sequence[Part], width: int) -> None:
        self._work, self._width = work, width
        self._reduction, self._result = (parts[0] if len(parts) == 2 else None), parts[-1]
        store = self._result.stage.store
        assert store is not None
        self._store = store
        self._out = _registers(width, str(store.buffer.dtype))
        self._sum = None if work.sum is None else _registers(width, str(work.sum.dtype))

    def body(self, values: Values) -> Stmt:
        """``values``: those of all axes but the lanes."""
        steps = [] if self._reduction is None else self._summed(self._reduction, values)
        steps += self._copied(self._result, values)
        steps.append(self._lanes(self._out, lambda lane: self._at(self._result, values, lane).value))
        within, store = self._result.within.var, self._store

        def moved(lane: Expr) -> Stmt:
            at = values | {within: lane}
            return tirx.BufferStore(
                store.buffer, tirx.BufferLoad(self._out, [lane]), [substitute(i, at) for i in store.indices]
            )

        steps += _in_chunks(self._width, store.buffer, within, moved)
        parts = [self._result] if self._reduction is None else [self._reduction, self._result]
        buffers = [buffer for part in parts for buffer, _ in part.copies]
        sums = [] if self._sum is None else [self._sum]
        return build.with_buffers([*buffers, *sums, self._out], build.seq(*steps), "thread")

    def _summed(self, part: Part, values: Values) -> list[Stmt]:
        init, total = part.stage.init, self._sum
        assert isinstance(init, tirx.BufferStore) and total is not None
        window = part.stage.reduction
        unrolled = (build.product(window) or 1) <= _UNROLLED

        def step(of_window: Values) -> Stmt:
            at = values | of_window
            return build.seq(
                *self._copied(part, at), self._lanes(total, lambda lane: self._at(part, at, lane).value)
            )

        kind = ForKind.UNROLLED if unrolled else ForKind.SERIAL
        return [self._lanes(total, lambda _: init.value), build.nest(window, step, kind)]

    def _copied(self, part: Part, values: Values) -> list[Stmt]:
        """The vectors of a part, moved to registers."""
        steps: list[Stmt] = []
        for registers, value in part.copies:

            def moved(lane: Expr, registers: Buffer = registers, value: Expr = value) -> Stmt:
                at = values | {part.within.var: lane}
                return tirx.BufferStore(registers, substitute(value, at), [lane])

            steps += _in_chunks(self._width, registers, part.within.var, moved)
        return steps

    def _at(self, part: Part, values: Values, lane: Expr) -> tirx.BufferStore:
        """What a part stores for one lane; it reads the sum from registers."""
        store = substitute(part.stage.body, values | {part.within.var: lane})
        summed, total = self._work.sum, self._sum
        if summed is None or total is None:
            return store

        def load(node: TensorLoad) -> Expr:
            return tirx.BufferLoad(total, [lane]) if node.source.same_as(summed) else node

        return tirx.BufferStore(
            store.buffer, tvm_ffi.structural_map(store.value, (TensorLoad, load)), store.indices
        )

    def _lanes(self, registers: Buffer, value: Callable[[Expr], Expr]) -> Stmt:
        """``registers[lane] = value(lane)`` for all lanes."""
        like = self._result.within.var
        return build.loop(
            self._width,
            lambda lane: tirx.BufferStore(registers, value(lane), [lane]),
            like,
            ForKind.UNROLLED,
        )


def _in_chunks(width: int, buffer: Buffer, like: Var, body: Callable[[Expr], Stmt]) -> list[Stmt]:
    """``body`` for all lanes, in vectors of at most 16 bytes of the type of ``buffer``."""
    size = min(width, _BYTES // _itemsize(buffer))

    def chunk(start: int) -> Stmt:
        first = tirx.const(start, like.expr_ty().dtype)
        return build.loop(size, lambda lane: body(first + lane if start else lane), like, ForKind.VECTORIZED)

    return [chunk(start) for start in range(0, width, size)]


def _registers(width: int, dtype: str) -> Buffer:
    return tirx.decl_buffer((width,), dtype, "registers", scope="local")


def _itemsize(buffer: Buffer) -> int:
    return int(tvm.DataType(str(buffer.dtype)).itemsize)


def _on_threads(iters: Sequence[Iter], body: Callable[[Values], Stmt]) -> Stmt:
    """``body`` for each step of ``iters``, one for each thread; blocks have ``_THREADS`` of them."""
    total, like = build.product(iters) or 1, iters[-1].var
    dtype = like.expr_ty().dtype

    def launched(count: int, tag: str, inner: Callable[[Expr], Stmt]) -> Stmt:
        var = tirx.Var(tag.partition("Idx")[0], like.ty)
        thread = tirx.IterVar(None, tirx.Var(tag, like.ty), tirx.IterVar.ThreadIndex, tag)
        zero, extent = tirx.const(0, dtype), tirx.const(count, dtype)
        return tirx.For(var, zero, extent, ForKind.THREAD_BINDING, inner(var), thread_binding=thread)

    def of_thread(number: Expr) -> Stmt:
        step = body(build.unfused(iters, number))
        return (
            step if total % _THREADS == 0 else tirx.IfThenElse(number < tirx.const(total, dtype), step, None)
        )

    return launched(
        -(-total // _THREADS),
        "blockIdx.x",
        lambda block: launched(_THREADS, "threadIdx.x", lambda thread: of_thread(block * _THREADS + thread)),
    )
