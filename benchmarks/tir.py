"""Modules with TIR of their own: ours against TVM's pipeline for the same target, in turns.

    python benchmarks/tir.py [--rounds 15] [--backends tvm] [--only TEXT] [--database FILE]

Emitted operators, and models that are lowered in part or as a whole. *Kernels* are calls of kernels in a run. TVM's
pipeline has no schedules for CPUs. With ``--backends tvm`` the difference is that of fusion and schedules alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from rich.console import Console
from rich.table import Table
from tvm import IRModule, ir, relax, te, tirx
from tvm.relax import op

import unity_collage as uc
from unity_collage.compiler import compile_with
from unity_collage.database.costs import CostDatabase
from unity_collage.lowering.build import build
from unity_collage.measure.measured import MeasuredCost
from unity_collage.pipeline import collage
from unity_collage.scratch import Scratch

SECONDS = 0.1
"""Of each program in each round."""

_KERNELS = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed")
Shape = tuple[int, ...]
Emit = Callable[[Any, list[Any]], Any]
Run = Callable[[], Any]


def weights(*shape: int) -> Any:
    values = np.random.default_rng([0, *shape]).standard_normal(shape) / np.sqrt(shape[0])
    return relax.const(values.astype("float32"))


def module(emit: Emit, *shapes: Shape) -> IRModule:
    """A module with a ``main`` that takes tensors of these shapes and returns the result of ``emit``."""
    builder: Any = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(emit(builder, params))
        builder.emit_func_output(result)
    return builder.get()


def mish(x: Any) -> Any:
    """x tanh(log(1 + exp(x))), which Relax does not have."""
    return te.compute(x.shape, lambda *i: x(*i) * tirx.tanh(tirx.log(1.0 + tirx.exp(x(*i)))), name="mish")


def clipped(x: Any) -> Any:
    return te.compute(x.shape, lambda *i: te.max(te.min(x(*i), 2.0), -2.0) * 0.5, name="clipped")


def unit_rows(x: Any) -> Any:
    k = te.reduce_axis((0, x.shape[1]), "k")
    energy: Any = te.compute((x.shape[0],), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="energy")
    return te.compute(x.shape, lambda i, j: x[i, j] * tirx.rsqrt(energy[i] + 1e-6), name="unit_rows")


def swiglu(both: Any) -> Any:
    half = both.shape[1] // 2
    return te.compute(
        (both.shape[0], half),
        lambda i, j: both[i, j] * tirx.sigmoid(both[i, j]) * both[i, j + half],
        name="swiglu",
    )


def elementwise(bb: Any, x: list[Any]) -> Any:
    """Emitted operators between those of Relax."""
    value = bb.emit(op.exp(bb.emit(op.negative(x[0]))))
    value = bb.emit(op.tanh(bb.emit_te(mish, value)))
    return bb.emit(op.add(bb.emit_te(clipped, value), x[1]))


def perceptron(bb: Any, x: list[Any]) -> Any:
    """An emitted activation behind each product."""
    value = x[0]
    for _ in range(3):
        product = bb.emit(op.matmul(value, weights(512, 512)))
        value = bb.emit_te(mish, bb.emit(op.add(product, weights(512))))
    return value


def gated(bb: Any, x: list[Any]) -> Any:
    """Rows of length one, a product, an emitted gate, a residual."""
    rows = bb.emit_te(unit_rows, x[0])
    gate = bb.emit_te(swiglu, bb.emit(op.matmul(rows, weights(256, 1024))))
    return bb.emit(op.add(bb.emit(op.matmul(gate, weights(512, 256))), x[0]))


def network(bb: Any, x: list[Any]) -> Any:
    """Two convolutions, their biases and activations, a mean, a product, a softmax."""
    value = x[0]
    for channels, outputs in ((3, 32), (32, 64)):
        value = bb.emit(op.nn.conv2d(value, weights(outputs, channels, 3, 3), padding=1))
        value = bb.emit(op.nn.relu(bb.emit(op.add(value, weights(1, outputs, 1, 1)))))
    value = bb.emit(op.matmul(bb.emit(op.mean(value, [2, 3])), weights(64, 100)))
    return bb.emit(op.nn.softmax(value))


def lowered(mod: IRModule, *kept: str) -> IRModule:
    """``mod`` with PrimFuncs in place of all operators but those ``kept``."""
    return relax.transform.LegalizeOps(skip_ops=[f"relax.{name}" for name in kept])(mod)


def modules() -> Iterator[tuple[str, IRModule]]:
    yield "emitted, element-wise 512x512", module(elementwise, (512, 512), (512, 512))
    yield "emitted activations, 3 products", module(perceptron, (128, 512))
    yield "emitted norm and gate", module(gated, (128, 256))
    yield "network", module(network, (1, 3, 56, 56))
    yield "network, products as operators", lowered(module(network, (1, 3, 56, 56)), "nn.conv2d", "matmul")
    yield "network, lowered", lowered(module(network, (1, 3, 56, 56)))
    yield "perceptron, lowered", lowered(module(perceptron, (128, 512)))


def kernels(mod: IRModule) -> int:
    found: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op) and expr.op.name in _KERNELS:
            found.append(expr.op.name)

    relax.analysis.post_order_visit(mod["main"], visit)
    return len(found)


def fused_by_tvm(mod: IRModule) -> IRModule:
    passes = (
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    )
    return tvm.transform.Sequential(passes)(mod)


def in_turns(programs: Sequence[Run], rounds: int) -> list[list[float]]:
    """Seconds of a run of each program, in each round."""
    for run in programs:
        run()
    seconds: list[list[float]] = [[] for _ in programs]
    for _ in range(rounds):
        for run, times in zip(programs, seconds, strict=True):
            begin, runs = time.perf_counter(), 0
            while time.perf_counter() < begin + SECONDS:
                run()
                runs += 1
            times.append((time.perf_counter() - begin) / runs)
    return seconds


def runner(executable: Any, inputs: list[tvm.runtime.Tensor]) -> Run:
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    return lambda: main(*inputs)


def row(
    name: str, mod: IRModule, database: CostDatabase, backends: Sequence[str] | None, rounds: int
) -> list[str]:
    target = uc.host_target()
    with MeasuredCost(database) as costs:
        compiled = compile_with(collage(backends, costs), mod).mod
    assert compiled is not None
    rng = np.random.default_rng(0)
    shapes = [[int(extent) for extent in param.ty.shape.values] for param in mod["main"].params]
    inputs = [tvm.runtime.tensor(rng.standard_normal(shape, dtype="float32")) for shape in shapes]
    with target:
        ours, theirs = build(compiled, target), relax.build(mod, target)
    programs = [runner(executable, inputs) for executable in (ours, theirs)]
    mine, right = (run().numpy() for run in programs)
    np.testing.assert_allclose(mine, right, rtol=1e-3, atol=1e-4)
    seconds = in_turns(programs, rounds)
    ratios = [b / a for a, b in zip(*seconds, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    counts = [str(kernels(compiled)), str(kernels(fused_by_tvm(mod)))]
    times = [f"{statistics.median(each) * 1e3:.3f}" for each in seconds]
    return [name, *times, f"{middle:.2f} ({low:.2f}-{high:.2f})", *counts]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--backends", nargs="+", metavar="NAME", help="backends of ours (default: all)")
    parser.add_argument("--only", metavar="TEXT", default="", help="modules whose names have this text")
    parser.add_argument("--database", metavar="FILE", help="where costs are kept (default: nowhere)")
    options = parser.parse_args()
    table = Table("module", "ours, ms", "TVM, ms", "TVM / ours", "kernels, ours", "kernels, TVM")
    with Scratch("tir") as folder:
        database = CostDatabase(options.database or Path(folder) / "costs.db")
        for name, mod in modules():
            if options.only in name:
                table.add_row(*row(name, mod, database, options.backends, options.rounds))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
