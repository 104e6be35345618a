"""What the VM pays to call one kernel, measured: the slope between a short and a long chain of calls."""

from __future__ import annotations

import statistics

import tvm
from tvm import relax
from tvm.script import tirx as T
from tvm.target import Target

from .. import runtime
from ..build import build

SHORT, LONG = 8, 72
"""Calls in the two programs that are compared."""


@T.prim_func(private=True, s_tir=True)
def _nothing(a: T.Buffer((1,), "float32"), b: T.Buffer((1,), "float32")) -> None:  # pyright: ignore
    for i in range(1):
        with T.sblock("copy"):
            vi = T.axis.spatial(1, i)
            b[vi] = a[vi]


def launch_seconds(target: Target) -> float:
    """Seconds for one kernel call of the Relax VM on this machine."""
    medians = [_seconds(_chain(count), target) for count in (SHORT, LONG)]
    return max(0.0, (medians[1] - medians[0]) / (LONG - SHORT))


def _chain(count: int) -> tvm.ir.IRModule:
    """``count`` calls of a kernel that copies one element."""
    builder = relax.BlockBuilder()
    kernel = builder.add_func(_nothing.with_attr({"op_pattern": 8, "tirx.is_scheduled": True}), "nothing")
    ty = relax.TensorType((1,), "float32")
    x = relax.Var("x", ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for _ in range(count):
                value = builder.emit(relax.call_tir(kernel, [value], out_ty=ty))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    return builder.get()


def _seconds(module: tvm.ir.IRModule, target: Target) -> float:
    machine = relax.VirtualMachine(build(module, target), tvm.cpu())
    machine.save_function("main", "run", tvm.runtime.empty((1,), "float32"))
    return statistics.median(
        runtime.measure(
            machine["run"], [], warmup_seconds=0.005, min_runs=50, max_runs=5000, min_seconds=0.02
        )
    )
