"""Times the kernels of branches that run side by side: each lane of a stage reads the clock between its kernels.

A stage is one kernel with a parallel loop over its lanes (:mod:`unity_collage.lowering.branches.merge`). Threads
cannot share the list of readings, so each reading has a place of its own in memory, and the code has its address.
Such a program runs in this process only, and the places hold the readings of the last run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import IRModule
from tvm.tirx.stmt import Stmt

from ..lowering.branches.merge import is_stage
from ..schedule.stage import nodes

_CALL = "tirx.tvm_call_cpacked"
_FIELDS = 2
"""``struct timespec`` is two integers of 64 bits: seconds and nanoseconds."""


@dataclass(frozen=True, slots=True)
class LaneCall:
    """A call of a kernel in a lane: ``first`` is the reading before it, and the next one is after it."""

    kernel: str
    lane: int
    first: int


@dataclass(frozen=True, slots=True)
class StageClocks:
    """The readings of a stage: of its lanes, and one when all lanes have ended."""

    calls: tuple[LaneCall, ...]
    end: int


@dataclass(frozen=True, slots=True)
class LaneClocks:
    """A module with stages that read the clock, and the arrays of the readings."""

    module: IRModule
    stages: Mapping[str, StageClocks]
    """By the name of the stage's kernel."""
    memory: np.ndarray
    """(readings, 2): seconds and nanoseconds of the monotonic clock. The code of the module writes here."""

    def readings(self) -> np.ndarray:
        """The readings of the last run, in nanoseconds."""
        return self.memory[:, 0] * 1_000_000_000 + self.memory[:, 1]


def with_lane_clocks(lowered: IRModule) -> LaneClocks:
    """``lowered`` with readings of the clock in all stages."""
    stages = {gvar: func for gvar, func in lowered.functions_items() if is_stage(gvar, func)}
    memory = np.zeros((sum(map(_readings_in, stages.values())), _FIELDS), np.int64)
    functions, found = dict(lowered.functions_items()), dict[str, StageClocks]()
    clock = _Clock(memory.ctypes.data)
    for gvar, func in stages.items():
        functions[gvar], found[str(gvar.name_hint)] = _with_clocks(func, clock)
    timed = IRModule(functions, attrs=lowered.attrs, global_infos=lowered.global_infos)
    return LaneClocks(timed, found, memory)


def _readings_in(func: Any) -> int:
    """How many readings a stage needs: one for each lane, each call and the end."""
    (loop,) = _parallel_loops(func)
    return len(list(_bodies(loop.body))) + sum(map(_is_kernel_call, nodes(loop.body, ir.Call))) + 1


def _parallel_loops(func: Any) -> list[Any]:
    return [loop for loop in nodes(func.body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL]


@dataclass(slots=True)
class _Clock:
    """Makes statements that read the clock, each to the next place."""

    address: int
    count: int = 0

    def reading(self) -> Stmt:
        place = self.address + 8 * _FIELDS * self.count
        self.count += 1
        pointer = tirx.reinterpret("handle", tirx.const(place, "uint64"))
        call = tirx.call_extern("int32", "clock_gettime", tirx.const(time.CLOCK_MONOTONIC, "int32"), pointer)
        return tirx.Evaluate(call)


def _with_clocks(func: Any, clock: _Clock) -> tuple[tirx.PrimFunc, StageClocks]:
    calls: list[LaneCall] = []

    def timed(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        lanes = [_lane(body, lane, clock, calls) for lane, body in enumerate(_bodies(loop.body))]
        chosen = lanes[-1]
        for number in reversed(range(len(lanes) - 1)):
            chosen = tirx.IfThenElse(tirx.EQ(loop.loop_var, number), lanes[number], chosen)
        ended = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, chosen)
        return tirx.SeqStmt([ended, clock.reading()])

    body = tvm_ffi.structural_map(func.body, (tirx.For, timed))
    return func.with_body(body), StageClocks(tuple(calls), clock.count - 1)


def _bodies(chosen: Any) -> Iterator[Any]:
    """The statements of each lane."""
    while isinstance(chosen, tirx.IfThenElse):
        yield chosen.then_case
        chosen = chosen.else_case
    yield chosen


def _lane(body: Any, lane: int, clock: _Clock, calls: list[LaneCall]) -> Stmt:
    first = clock.reading()

    def timed(statement: Any) -> Any:
        if not _is_kernel_call(statement.value):
            return statement
        calls.append(LaneCall(str(statement.value.args[0].value), lane, clock.count - 1))
        return tirx.SeqStmt([statement, clock.reading()])

    return tirx.SeqStmt([first, tvm_ffi.structural_map(body, (tirx.Evaluate, timed))])


def _is_kernel_call(value: Any) -> bool:
    return isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and value.op.name == _CALL
