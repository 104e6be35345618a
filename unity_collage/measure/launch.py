"""Measures what a plan costs besides its kernels: launches, and transitions of values between backends.

Every figure is the slope between a short and a long program, so that the fixed cost of a run cancels out. A launch is a
call of a kernel that does nothing. A transition is the extra cost of kernels of two backends that alternate, compared
with chains of each backend alone. Differences within the noise of the kernels count as 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import combinations, cycle, islice
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.target import Target

from .. import runtime
from ..annotations import CANDIDATES
from ..backends.base import Backend
from ..backends.registry import get
from ..graph import DataflowGraph
from ..index_set import members
from ..lowering.apply import applied_module
from ..lowering.build import build
from ..lowering.fuse import fused
from ..lowering.offload import offloaded_module
from ..plan.candidate import Candidate
from ..rules import Found

SHORT, LONG = 8, 72
"""Calls in the two programs that measure a launch."""
FEW, MANY = 4, 20
"""Kernels in the two programs that measure a transition."""
ROUNDS = 5
"""How often each of those programs is timed."""
NOISE = 0.1
"""By what part two slopes of the same kernels may differ."""

_PROBE = (64, 256)
"""Shape of the values between the probe kernels: 64 KiB, so that every thread has a part."""


@T.prim_func(private=True, s_tir=True)
def _nothing(a: T.Buffer((1,), "float32"), b: T.Buffer((1,), "float32")) -> None:  # pyright: ignore
    for i in range(1):
        with T.sblock("copy"):
            vi = T.axis.spatial(1, i)
            b[vi] = a[vi]


def overheads(target: Target, names: Sequence[str]) -> dict[str, Any]:
    """Seconds: ``launches`` by backend, ``transitions`` by ``"writer>reader"``, and ``seconds`` of a TVM launch."""
    generated, external = launch_seconds(target), launch_seconds(target, external=True)
    backends = [get(name) for name in names]
    launches = {b.name: generated if b.codegen is None else external for b in backends}
    return {"seconds": generated, "launches": launches, "transitions": transitions(target, backends)}


def launch_seconds(target: Target, external: bool = False) -> float:
    """Seconds for one kernel call of the Relax VM on this machine, of generated code or of an external function."""
    short, long = (_timed(_chain(count, external), target, (1,))() for count in (SHORT, LONG))
    return max(0.0, (long - short) / (LONG - SHORT))


def transitions(target: Target, backends: Sequence[Backend]) -> dict[str, float]:
    """The cost of a transition for each pair of backends, half for each direction; pairs without one are left out.

    All chains are timed in rounds. A pair has a transition only if it costs more in every round: noise that is taken
    for a transition changes plans, and makes the search many times as long.
    """
    chains: dict[tuple[str, ...], tuple[Chain, Chain]] = {}
    probes: dict[str, Probe] = {}
    for backend in backends:
        try:
            probe = _probe(backend, target)
            if probe is not None:
                chains[backend.name,] = _chains([probe], target)
                probes[backend.name] = probe
        except Exception:  # a foreign compiler or kernel failed, as the reasons of its candidates will say
            continue
    pairs = list(combinations(probes, 2))
    for pair in pairs:
        chains[pair] = _chains([probes[name] for name in pair], target)
    rounds = [{names: _slope(two) for names, two in chains.items()} for _ in range(ROUNDS)]
    found: dict[str, float] = {}
    for one, other in pairs:
        apart = [(slopes[one,] + slopes[other,]) / 2 for slopes in rounds]
        more = [slopes[one, other] - alone for slopes, alone in zip(rounds, apart, strict=True)]
        if min(more) > NOISE * statistics.median(apart):
            seconds = statistics.median(more)
            found |= {f"{one}>{other}": seconds, f"{other}>{one}": seconds}
    return found


Probe = tuple[str, tuple[str, ...]]
"""A backend, and the operators among ``matmul`` and ``relu`` that it makes one kernel of."""

Chain = Callable[[], float]
"""Times a program; the result is the median seconds of a run."""


def _probe(backend: Backend, target: Target) -> Probe | None:
    """The largest kernel that a backend offers of a product and a relu, None if it takes neither."""
    graph = DataflowGraph(_ops(("matmul", "relu"))["main"])
    with target:
        found = [p for p in backend.rule(target).apply(graph) if isinstance(p, Found) and not p.nested]
    if not found:
        return None
    largest = max(found, key=lambda proposal: proposal.inside.bit_count())
    return backend.name, tuple(("matmul", "relu")[index] for index in members(largest.inside))


def _chains(probes: Sequence[Probe], target: Target) -> tuple[Chain, Chain]:
    """A short and a long chain of kernels in which ``probes`` alternate."""
    short, long = (_timed(_alternating(probes, count, target), target, _PROBE) for count in (FEW, MANY))
    return short, long


def _slope(chains: tuple[Chain, Chain]) -> float:
    """Seconds of one more kernel."""
    short, long = chains
    return (long() - short()) / (MANY - FEW)


def _alternating(probes: Sequence[Probe], count: int, target: Target) -> tvm.ir.IRModule:
    turns = list(islice(cycle(probes), count))
    module = _ops([op for _, ops in turns for op in ops])
    candidates: list[Candidate] = []
    first = 0
    for number, (backend, ops) in enumerate(turns):
        indexes = tuple(range(first, first + len(ops)))
        candidates.append(Candidate(number, backend, "probe", "_".join(ops), indexes))
        first += len(ops)
    typed = tvm.ir.IRModule({"main": CANDIDATES.write(module["main"], tuple(candidates))})
    with target:
        return fused(offloaded_module(applied_module(typed, {"main": tuple(range(count))})), target)


def _ops(ops: Sequence[str]) -> tvm.ir.IRModule:
    """These operators in a chain. Products are with the unit matrix, so that values do not grow."""
    weights = relax.const(np.eye(_PROBE[1], dtype=np.float32))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(_PROBE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for op in ops:
                value = builder.emit(R.matmul(value, weights) if op == "matmul" else R.nn.relu(value))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    return builder.get()


def _chain(count: int, external: bool) -> tvm.ir.IRModule:
    """``count`` calls of a kernel that does nothing, or copies one element."""
    builder = relax.BlockBuilder()
    kernel = builder.add_func(_nothing.with_attr({"op_pattern": 8, "tirx.is_scheduled": True}), "nothing")
    ty = relax.TensorType((1,), "float32")
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for _ in range(count):
                call = (
                    relax.call_dps_packed("collage.runtime.nothing", [value], out_ty=ty)
                    if external
                    else relax.call_tir(kernel, [value], out_ty=ty)
                )
                value = builder.emit(call)
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    return builder.get()


def _timed(module: tvm.ir.IRModule, target: Target, shape: tuple[int, ...]) -> Chain:
    machine = relax.VirtualMachine(build(module, target), tvm.cpu())
    machine.save_function("main", "run", tvm.runtime.tensor(np.zeros(shape, np.float32)))
    run = machine["run"]

    def seconds() -> float:
        return statistics.median(
            runtime.measure(run, [], warmup_seconds=0.005, min_runs=15, max_runs=5000, min_seconds=0.01)
        )

    return seconds
