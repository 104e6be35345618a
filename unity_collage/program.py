"""Program: a compiled model that can be called, timed and saved."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

from . import runtime
from .errors import CollageError, first_line
from .lowering import library_file
from .runtime.vendors import VENDORS

if TYPE_CHECKING:
    from .plan.explanation import Explanation
    from .plan.plan import Plan

Value = np.ndarray | tvm.runtime.Tensor | Sequence["Value"]
"""An input: a tensor, or a tuple of them if the model takes a tuple."""

ALIGNMENT = 64
"""The alignment in bytes that TVM's kernels assume of tensors, since they read and write whole vectors."""

RUNTIMES = tuple(VENDORS)
"""The native libraries that a saved program may need."""


class Program:
    """A model that runs on the CPU.

    Call it with numpy arrays or TVM tensors, by position or by input name. It returns what ``main`` of the model
    returns: one TVM tensor, or a list of them.
    """

    def __init__(
        self,
        executable: Any,
        input_names: Sequence[str] | None = None,
        mod: IRModule | None = None,
        plan: Mapping[str, Plan] | None = None,
        explanation: Mapping[str, Explanation] | None = None,
        relink: Callable[[], Any] | None = None,
    ) -> None:
        """``relink`` builds a new executable of the same program, for :meth:`save`."""
        self._executable = executable
        self._relink = relink
        self._names = None if input_names is None else tuple(input_names)
        self.mod = mod
        """The final IRModule; None for a loaded program."""
        self.plan = plan
        """The plan of each function: its kernels, their backends and costs; None for a loaded program."""
        self.explanation = explanation
        """Why each candidate was chosen or not, by function; None if it was not requested."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the model's inputs."""
        if self._names is None:
            self._names = tuple(self._parameters())
        return self._names

    def add_to_plan(self, function: str, **fields: Any) -> None:
        """Set ``fields`` in the plan of a function; remarks are appended to the earlier ones."""
        from .plan.plan import WITHOUT_CANDIDATES  # a process that runs a saved program has no plans

        found = dict(self.plan or {})
        plan = found.get(function, WITHOUT_CANDIDATES)
        remarks = (*plan.remarks, *fields.pop("remarks", ()))
        found[function] = replace(plan, remarks=remarks, **fields)
        self.plan = found

    def __call__(self, *args: Value, **named: Value) -> Any:
        return self._main(*self._arguments(args, named))

    def benchmark(self, *args: Value, seconds: float = 1.0, **named: Value) -> dict[str, float]:
        """The seconds of a run, timed natively for about ``seconds``: median, 5th and 95th percentile, and runs."""
        run = self.prepared(*args, **named)
        timed = runtime.measure(run, [], warmup_seconds=seconds / 5, min_runs=20, min_seconds=seconds)
        low, *_, high = statistics.quantiles(timed, n=20)
        return {"median": statistics.median(timed), "p5": low, "p95": high, "runs": len(timed)}

    def prepared(self, *args: Value, **named: Value) -> Any:
        """A function of no arguments that runs the model on these inputs, for native timing loops."""
        self._machine.save_function("main", "prepared_main", *self._arguments(args, named))
        return self._machine.module["prepared_main"]

    def save(self, path: str | Path) -> None:
        """Write a shared library for :func:`load`; needs a C++ compiler.

        A program that has run is built again, from the same final module, and that build is written.

        Raises CollageError with the reason in one line.
        """
        if self.mod is None:
            raise CollageError("a loaded program cannot be saved: copy its file instead")
        executable = self._executable
        if "_machine" in self.__dict__ and self._relink is not None:
            # A VM marks the executable that it runs. TVM prints a line for each constant of such an executable when
            # it is written or read.
            executable = self._relink()
        library_file.export(executable, path)

    @cached_property
    def _machine(self) -> Any:
        return relax.VirtualMachine(self._executable, tvm.cpu())

    @cached_property
    def _main(self) -> Any:
        return self._machine["main"]

    def _arguments(self, args: Sequence[Value], named: Mapping[str, Value]) -> list[Any]:
        """The arguments of ``main``, in order."""
        if len(args) + len(named) != len(self.input_names):
            raise CollageError(f"{len(args) + len(named)} inputs given; the model takes {self._signature()}")
        values = list(args)
        given = {identifier(name): value for name, value in named.items()} | dict(named)
        for name in self.input_names[len(args) :]:
            key = name if name in given else identifier(name)
            if key not in given:
                raise CollageError(f"input {name!r} is missing; the model takes {self._signature()}")
            values.append(given[key])
        return [argument(value) for value in values]

    def _parameters(self) -> list[str]:
        module = self._machine.module
        arity = int(module["get_function_arity"]("main"))
        return [str(module["get_function_param_name"]("main", i)) for i in range(arity)]

    def _signature(self) -> str:
        return f"{len(self.input_names)}: {', '.join(self.input_names)}"


def load(path: str | Path) -> Program:
    """The program that :meth:`Program.save` wrote; raises CollageError with the reason in one line."""
    if not Path(path).is_file():
        raise CollageError(f"{path} is not a file")
    missing = {name: reason for name in RUNTIMES if (reason := runtime.why_unavailable(name))}
    for name in RUNTIMES:
        if name not in missing:
            runtime.load(name)
    try:
        program = Program(library_file.read(path))
        assert program.input_names is not None  # starts the VM, which fails here if the program cannot run
        return program
    except (RuntimeError, AttributeError, ValueError) as error:
        # A part of the program cannot be read, or is missing.
        why = "; ".join([first_line(error), *missing.values()])
        raise CollageError(f"{path} cannot be loaded as a program: {why}") from error


def argument(value: Any) -> Any:
    """An input as the VM takes it: arrays become tensors, tuples stay tuples."""
    if isinstance(value, (tuple, list)):
        return tuple(argument(field) for field in value)
    if isinstance(value, (tvm.runtime.Tensor, tvm_ffi.Object)):
        return value
    array = np.asarray(value)
    return tvm.runtime.tensor(array) if array.size == 0 or array.dtype.kind not in "fiub" else _copied(array)


def _copied(array: np.ndarray) -> Any:
    """A new tensor with the values of ``array``, aligned as TVM's kernels expect.

    ``tvm.runtime.tensor`` takes 12 us for the smallest array, longer than a run of a small model.
    """
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    aligned = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    aligned[...] = array
    return tvm_ffi.from_dlpack(aligned)


def identifier(name: str) -> str:
    """The name of an input as an identifier of Python and Relax: ``gpu_0/data`` -> ``gpu_0_data``."""
    return re.sub(r"\W", "_", name)
