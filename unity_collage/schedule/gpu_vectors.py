"""Vectors on a GPU: each thread computes a few neighbours, and moves them by one access of up to 16 bytes.

    y[n, h, w, c] = relu(sum over i, j of x[n, h + i, w + j, c] * k[i, j, c])
        ->  each thread: s[0:8] = 0;  for i, j: v[0:8] = x[n, h + i, w + j, 8 * c: 8 * c + 8];  s[l] += v[l] * ...

These are elementwise kernels, and poolings and depthwise convolutions with channels last. Only copies between memory
and registers are vectors. Arithmetic is done lane by lane: the widest that CUDA has is that of two float16.
Neighbouring threads move neighbouring vectors, which NVIDIA's "CUDA C++ Best Practices Guide" calls coalesced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.target import Target

from . import build, tile
from .axes import axis, flattened, ranges, simplified, with_value
from .gpu_vector_loops import Fork, Thread, VectorPart, itemsize, on_threads, registers
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
    choices,
    expensive_calls,
    flat_index,
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
_FORKS = 8
"""The most statements that a thread chooses from."""
_TYPES = frozenset({"float16", "bfloat16", "float32", "int32"})
"""The types that are moved in vectors."""
_SMALL, _LARGEST, _ENOUGH = 64, 256, 1 << 14
"""A thread goes through a window of up to ``_SMALL`` elements, or up to ``_LARGEST`` if there are ``_ENOUGH``
results."""


class Vectors:
    """The rule for kernels in vectors. ``apply`` is the interface of dlight's rules."""

    def apply(self, func: Func, _target: Target, _tunable: bool) -> Func | None:
        """``func`` in vectors; None if it is neither elementwise nor a window, or if its accesses are not vectors."""
        work = work_of(func)
        return None if isinstance(work, str) else in_vectors(func, work)


@dataclass(frozen=True)
class VectorWork:
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


def work_of(func: Func) -> VectorWork | str:
    """What ``func`` computes, or the reason why it cannot be computed in vectors."""
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
        if rest and (not first.temporary or first.reads(rest[0])):
            return "its reduction is a result too, or reads what is written behind it"
        pair = tile.paired(first, rest[0] if rest else None)
        if isinstance(pair, str):
            return pair
        work = VectorWork(pair[1], pair[0])
    elif rest:
        return "it has several results"
    else:
        work = VectorWork(flattened(first), None)
    if work.result.store is None or not work.result.iters:
        return "it does not write one element for each step of an axis"
    return _why_not_window(work) or work


def _why_not_window(work: VectorWork) -> str | None:
    if work.reduction is None:
        return None
    window, results = build.product(work.reduction.reduction) or 1, build.product(work.result.iters) or 1
    if window <= _SMALL or (window <= _LARGEST and results >= _ENOUGH):
        return None
    return f"more than one thread reduces {window} elements"


def _inlined(func: Func) -> Func:
    """``func`` with its elementwise stages computed where they are read."""
    schedule = s_tir.Schedule(func, debug_mask="none", error_render_level="none")
    for found in schedule.get_child_blocks(schedule.get_sblock("root")):
        readers = [schedule.get(reader) for reader in schedule.get_consumers(found)]
        block = schedule.get(found)
        again = any(reader.init is not None for reader in readers) and expensive_calls(block.body)
        if block.init is None and readers and not again:
            schedule.compute_inline(found)
    return schedule.mod["main"]


def in_vectors(func: Func, work: VectorWork) -> Func | None:
    """``func`` with the loops of ``work`` in the widest vectors that leave enough threads; None if it has none."""
    for width in _widths(work):
        lane, within = axis(work.lane.var, (work.lane.size or 1) // width), axis(work.lane.var, width)
        result = _part(work, work.result, lane, within)
        reduction = None if work.reduction is None else _part(work, work.reduction, lane, within)
        if not isinstance(result, str) and (reduction is None or isinstance(reduction, VectorPart)):
            body = on_threads([*work.result.iters[:-1], lane], width, Thread(result, reduction, width).body)
            return func.with_body(s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body)))
    return None


def _widths(work: VectorWork) -> list[int]:
    """The numbers of neighbours to try, the best one first."""
    buffers = [load.source for stage in work.stages for load in work.loads(stage)]
    buffers += [store.buffer for store in work.result.stores]
    moved = [itemsize(buffer) for buffer in buffers if str(buffer.dtype) in _TYPES]
    widest = _BYTES // max(moved, default=_BYTES)
    fits = [width for width in _WIDTHS if width <= widest and (work.lane.size or 1) % width == 0]
    results = build.product(work.result.iters) or 1
    busy = [width for width in fits if results // width >= _BUSY]
    return busy + [width for width in reversed(fits) if width not in busy]


def _part(work: VectorWork, stage: Stage, lane: Iter, within: Iter) -> VectorPart | Fork | str:
    """``stage`` over ``lane`` and ``within``, or the reason why its accesses along ``within`` are not vectors."""
    old = work.lane.var
    iters = [new for it in stage.iters for new in ((lane, within) if it.var.same_as(old) else (it,))]
    stage = stage.substituted({old: lane.var * within.extent + within.var}, iters)
    analyzer = ranges(iters)
    stage = _with_simple_conditions(simplified(stage), analyzer)
    is_vector = _vectors(within.var, within.size or 1, analyzer)
    store = stage.store
    if store is None or (stage.init is None and not is_vector(store)):
        return "its results are not next to each other"
    strides = [stride(load, within.var, analyzer) for load in work.loads(stage)]
    if any(step is None or static(step) not in (0, 1) for step in strides):
        return "neighbours read elements that are neither one nor neighbours"
    if work.reduction is None and len(_tests(stage, within)) < _FORKS:
        forked = _forked(work, stage, within, is_vector)
        if isinstance(forked, Fork) and forked.leaves <= _FORKS:
            return forked
    part = _copies(work, stage, within, is_vector)
    return part if work.reduction is not None or part.copies else "it reads no vectors"


def _tests(stage: Stage, within: Iter) -> list[Expr]:
    """The conditions between tensors that hold for all lanes or for none, each once, the outermost first."""
    found: list[Expr] = []
    for choice in reversed(choices(stage.body)):
        test, *sides = choice.args
        is_one = not any(var.same_as(within.var) for var in nodes(test, Var))
        is_known = any(tvm_ffi.structural_equal(test, known) for known in found)
        if is_one and not is_known and all(nodes(side, TensorLoad) for side in sides):
            found.append(test)
    return found


def _forked(
    work: VectorWork, stage: Stage, within: Iter, is_vector: Callable[[Access], bool]
) -> VectorPart | Fork:
    """The stage as several, without the conditions of :func:`_tests`."""
    tests = _tests(stage, within)
    if not tests:
        return _copies(work, stage, within, is_vector)
    holds, fails = (_forked(work, _where(stage, tests[0], side), within, is_vector) for side in (1, 2))
    return Fork(tests[0], holds, fails)


def _where(stage: Stage, test: Expr, side: int) -> Stage:
    """``stage`` where ``test`` holds (1) or fails (2)."""

    def chosen(call: Call) -> Expr:
        is_one = op_name(call) == "if_then_else" and tvm_ffi.structural_equal(call.args[0], test)
        return call.args[side] if is_one else call

    return replace(stage, body=tvm_ffi.structural_map(stage.body, (Call, chosen)))


def _copies(work: VectorWork, stage: Stage, within: Iter, is_vector: Callable[[Access], bool]) -> VectorPart:
    copies: list[tuple[Buffer, Expr]] = []
    for load, vector in _moved(work, stage, within.var, is_vector):
        own = registers(within.size or 1, load.source)
        copies.append((own, vector))
        stage = with_value(stage, load, tirx.BufferLoad(own, [within.var]))
    return VectorPart(stage, within, tuple(copies))


def _with_simple_conditions(stage: Stage, analyzer: sym.Analyzer) -> Stage:
    """``stage`` with simplified conditions, which show whether they depend on the lane."""

    def choice(node: Call) -> Expr:
        if op_name(node) != "if_then_else":
            return node
        condition = tvm_ffi.structural_map(node.args[0], (tirx.LE, at_most))
        return tirx.if_then_else(analyzer.simplify(condition), node.args[1], node.args[2])

    def at_most(node: tirx.LE) -> Expr:
        # TVM simplifies ``8 * c + lane < 24`` to ``c < 3``, but leaves ``24 <= 8 * c + lane`` as it is.
        return analyzer.simplify(tirx.Not(analyzer.simplify(tirx.LT(node.b, node.a))))

    return replace(stage, body=tvm_ffi.structural_map(stage.body, (Call, choice)))


def _vectors(lane: Var, width: int, analyzer: sym.Analyzer) -> Callable[[Access], bool]:
    """Whether an access goes through ``width`` neighbours from a multiple of ``width`` on."""

    def is_vector(access: Access) -> bool:
        step = stride(access, lane, analyzer)
        if str(buffer_of(access).dtype) not in _TYPES or step is None or static(step) != 1:
            return False
        first = substitute(flat_index(access), {lane: tirx.const(0, lane.expr_ty().dtype)})
        begin = analyzer.modular_set(analyzer.simplify(first))
        return begin.coeff % width == 0 and begin.base % width == 0

    return is_vector


def _moved(
    work: VectorWork, stage: Stage, lane: Var, is_vector: Callable[[Access], bool]
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
        if chosen := _choice(value):
            test, *sides = chosen
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


def _choice(value: Expr) -> Sequence[Expr]:
    """The condition and both sides of a choice; a side may read out of bounds where it is not chosen.

    TVM makes such a choice of each Select that reads memory. Empty for other expressions.
    """
    if isinstance(value, tirx.Select):
        return [value.condition, value.true_value, value.false_value]
    return list(value.args) if isinstance(value, Call) and op_name(value) == "if_then_else" else []


_OPERANDS = ("args", "indices", "value", "a", "b")
"""The fields of expressions with their operands, but for those of Let and Select."""


def _operands(value: Expr) -> list[Expr]:
    """The expressions that ``value`` computes with."""
    fields = [getattr(value, name, None) for name in _OPERANDS]
    each = [field if isinstance(field, Iterable) else [field] for field in fields]
    return [operand for field in each for operand in field if isinstance(operand, Expr)]
