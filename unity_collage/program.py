"""Program: a compiled model that can be called, timed and saved."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule

from . import runtime
from .errors import CollageError

Value = np.ndarray | tvm.runtime.Tensor

RUNTIMES = ("onednn", "openblas")
"""The native libraries that a saved program may need."""


class Program:
    """A model that runs on the CPU.

    Call it with numpy arrays or TVM tensors, by position or by input name; it returns TVM tensors, as the
    model's ``main`` does: one, or a list.
    """

    def __init__(
        self,
        executable: Any,
        input_names: Sequence[str],
        mod: IRModule | None = None,
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        self._executable = executable
        self._machine = relax.VirtualMachine(executable, tvm.cpu())
        self.input_names = tuple(input_names)
        self.mod = mod
        """The final IRModule; None for a program that was loaded."""
        self.plan = plan
        """What became one kernel of which backend at what price, by function; None for a loaded program."""

    def __call__(self, *args: Value, **named: Value) -> Any:
        return self._machine["main"](*self._tensors(args, named))

    def benchmark(self, *args: Value, seconds: float = 1.0, **named: Value) -> dict[str, float]:
        """Seconds of a run, timed natively for about ``seconds``: median, 5th and 95th percentile, runs."""
        run = self.prepared(*args, **named)
        timed = runtime.measure(run, [], warmup_seconds=seconds / 5, min_runs=20, min_seconds=seconds)
        low, *_, high = statistics.quantiles(timed, n=20)
        return {"median": statistics.median(timed), "p5": low, "p95": high, "runs": len(timed)}

    def prepared(self, *args: Value, **named: Value) -> Any:
        """A function of no arguments that runs the model on these inputs, for native timing loops."""
        self._machine.save_function("main", "prepared_main", *self._tensors(args, named))
        return self._machine.module["prepared_main"]

    def save(self, path: str | Path) -> None:
        """Write a shared library that :func:`load` reads back; needs a C++ compiler."""
        self._executable.export_library(str(path))

    def _tensors(self, args: Sequence[Value], named: Mapping[str, Value]) -> list[tvm.runtime.Tensor]:
        if len(args) + len(named) != len(self.input_names):
            raise CollageError(f"{len(args) + len(named)} inputs given; the model takes {self._signature()}")
        values = list(args)
        by_name = {identifier(name): value for name, value in named.items()}
        for name in self.input_names[len(args) :]:
            if identifier(name) not in by_name:
                raise CollageError(f"input {name!r} is missing; the model takes {self._signature()}")
            values.append(by_name[identifier(name)])
        return [v if isinstance(v, tvm.runtime.Tensor) else tvm.runtime.tensor(np.asarray(v)) for v in values]

    def _signature(self) -> str:
        return f"{len(self.input_names)}: {', '.join(self.input_names)}"


def load(path: str | Path) -> Program:
    """The program that :meth:`Program.save` wrote."""
    if not Path(path).is_file():
        raise CollageError(f"{path} is not a file")
    for name in RUNTIMES:
        if runtime.why_unavailable(name) is None:
            runtime.load(name)
    executable = tvm.runtime.load_module(str(path))
    return Program(executable, _input_names(executable))


def identifier(name: str) -> str:
    """An input's name as the importer writes it into Relax: ``gpu_0/data`` -> ``gpu_0_data``."""
    return re.sub(r"\W", "_", name)


def _input_names(executable: Any) -> list[str]:
    arity = int(executable["get_function_arity"]("main"))
    return [str(executable["get_function_param_name"]("main", i)) for i in range(arity)]
