"""The overhead of a call of a small program, by kind of input, in microseconds.

    python benchmarks/calls.py

*VM* is the bare function of TVM on its own tensors; the other columns are calls of the program. Each figure is the
least mean of many short loops, since other work on the machine only adds to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax, tirx
from tvm.relax import op

import unity_collage as uc
from unity_collage.compiler import compile_with
from unity_collage.pipeline import collage
from unity_collage.testing.fixed_cost import FixedCost

CALLS, LOOPS = 300, 150


def added(inputs: int, rows: int | str) -> uc.Program:
    """The sum of ``inputs`` matrices."""
    extent = tirx.Var(rows, "int64") if isinstance(rows, str) else rows
    params = [relax.Var(f"x{number}", relax.TensorType([extent, 8], "float32")) for number in range(inputs)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            total = builder.emit(op.nn.relu(params[0]))
            for param in params[1:]:
                total = builder.emit(op.add(total, param))
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return compile_with(collage(["tvm"], FixedCost({"tvm": 1e-6})), builder.get())


def microseconds(call: Callable[[], Any]) -> str:
    """The least mean time of a call over many loops."""
    best = float("inf")
    for _ in range(LOOPS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - start) / CALLS)
    return f"{best * 1e6:.2f}"


def main() -> None:
    """Print the table."""
    table = Table("inputs", "rows", "VM", "TVM", "numpy", "by name", "out", "torch")
    for inputs in (1, 4):
        for rows in (4, "n"):
            program = added(inputs, rows)
            arrays = [np.ones((4, 8), "float32")] * inputs
            tensors = [tvm.runtime.tensor(array) for array in arrays]
            named = dict(zip(program.input_names, arrays, strict=True))
            out = np.empty((4, 8), "float32")
            calls: list[Callable[[], Any]] = [
                lambda program=program, tensors=tensors: program._main(*tensors),
                lambda program=program, tensors=tensors: program(*tensors),
                lambda program=program, arrays=arrays: program(*arrays),
                lambda program=program, named=named: program(**named),
                lambda program=program, arrays=arrays, out=out: program(*arrays, out=out),
            ]
            try:
                import torch

                given = [torch.ones(4, 8)] * inputs
                calls.append(lambda program=program, given=given: program(*given))
            except ImportError:
                pass
            table.add_row(str(inputs), str(rows), *map(microseconds, calls))
    Console().print(table)


if __name__ == "__main__":
    main()
