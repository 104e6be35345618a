"""Measures the costs of a plan other than its kernels: launches, and transitions (:mod:`.transitions`).

The figure of a launch is the slope between a short and a long program, so that the fixed cost of a run cancels out. A
launch is a call of a kernel that does nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.script import tirx as T
from tvm.target import Target

from .. import runtime
from ..backends.registry import get
from ..lowering.build import build
from .transitions import Begin, transitions

SHORT, LONG = 8, 72
"""Calls in the two programs that measure a launch."""


@T.prim_func(private=True, s_tir=True)
def _nothing(a: T.Buffer((1,), "float32"), b: T.Buffer((1,), "float32")) -> None:  # pyright: ignore
    for i in range(1):
        with T.sblock("copy"):
            vi = T.axis.spatial(1, i)
            b[vi] = a[vi]


def overheads(target: Target, names: Sequence[str], begin: Begin) -> dict[str, Any]:
    """Seconds: ``launches`` by backend, ``transitions`` by ``"writer>reader"``, and ``seconds`` of a TVM launch.

    ``unknown`` has the backends without measured transitions, with the reason. ``begin`` is told before each step.
    """
    generated, external = launch_seconds(target)
    backends = [get(name) for name in names]
    launches = {b.name: generated if b.codegen is None else external for b in backends}
    found = transitions(target, backends, begin)
    return {
        "seconds": generated,
        "launches": launches,
        "transitions": found.seconds,
        "unknown": found.unknown,
    }


def launch_seconds(target: Target) -> tuple[float, float]:
    """Seconds for a kernel call of the Relax VM on this machine, of generated code and of an external function."""
    machine = relax.VirtualMachine(build(_chains(), target), tvm.cpu())
    generated, external = (
        [_timed(machine, _name(count, is_external)) for count in (SHORT, LONG)]
        for is_external in (False, True)
    )
    return _slope(*generated), _slope(*external)


def _slope(short: float, long: float) -> float:
    """Seconds of one more call."""
    return max(0.0, (long - short) / (LONG - SHORT))


def _name(count: int, is_external: bool) -> str:
    return f"{'external' if is_external else 'generated'}_{count}"


def _chains() -> tvm.ir.IRModule:
    """A short and a long chain of calls of a kernel that does nothing, and of one that copies an element."""
    builder = relax.BlockBuilder()
    kernel = builder.add_func(_nothing.with_attr({"op_pattern": 8, "tirx.is_scheduled": True}), "nothing")
    ty = relax.TensorType((1,), "float32")
    for count in (SHORT, LONG):
        for is_external in (False, True):
            x = relax.Var("x", ty)
            with builder.function(_name(count, is_external), [x]):
                with builder.dataflow():
                    value: relax.Expr = x
                    for _ in range(count):
                        call = (
                            relax.call_dps_packed("collage.runtime.nothing", [value], out_ty=ty)
                            if is_external
                            else relax.call_tir(kernel, [value], out_ty=ty)
                        )
                        value = builder.emit(call)
                    value = builder.emit_output(value)
                builder.emit_func_output(value)
    return builder.get()


def _timed(machine: relax.VirtualMachine, name: str) -> float:
    """The median seconds of a run of the function ``name``."""
    machine.save_function(name, f"run_{name}", tvm.runtime.tensor(np.zeros((1,), np.float32)))
    runs = runtime.measure(
        machine[f"run_{name}"], [], warmup_seconds=0.005, min_runs=15, max_runs=5000, min_seconds=0.01
    )
    return statistics.median(runs)
