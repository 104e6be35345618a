"""Bench: where a worker process runs and times kernels, the CPU or a CUDA device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import tvm
from tvm import relax
from tvm.target import Target

from .. import runtime
from ..cost.method import Method
from ..machine.load import LoadWatch
from ..runtime.timing import Runner, Timed
from .built_kernel import BuiltKernel
from .guard import outputs_of
from .kernels import activation_tensors, output_tensors
from .launch import overheads
from .process_state import ProcessState
from .transitions import Begin

T = TypeVar("T")


class Bench(Protocol):
    """Runs kernels for a worker. Raises Spoilt when a kernel has left it in a state in which no other can be timed."""

    tries_nan: bool
    """Whether all kernels also have to show that they keep NaN, not only those that ask for it.

    On the CPU the rules know which primitives do not.
    """
    compiles_ahead: bool
    """Whether kernels of TVM are compiled in threads before any is timed."""

    def settled(self, run: Callable[[], T]) -> T:
        """Call ``run``, which runs a kernel, and return its result."""
        ...

    def prepare(self, module: Any) -> None:
        """Do work on the module of a kernel that would otherwise be part of its first run."""
        ...

    def after_building(self) -> None:
        """Undo what a compiler has changed."""
        ...

    def after_timing(self) -> None:
        """Check that the kernels that were just timed have changed nothing."""
        ...

    def outputs_of(
        self,
        kernel: Any,
        inputs: Sequence[np.ndarray],
        constants: Sequence[tvm.runtime.Tensor],
        func: relax.Function,
        at_end: bool,
    ) -> list[np.ndarray]:
        """The outputs of ``kernel``; raises Refused when it writes outside of them (:func:`.guard.outputs_of`)."""
        ...

    def runners_of(
        self, func: relax.Function, inputs: Sequence[np.ndarray], built: Mapping[str, BuiltKernel]
    ) -> dict[str, Runner]:
        """The kernels with their arguments, by key. Kernels for one computation share all but constants."""
        ...

    def time_in_turns(self, runners: Sequence[Runner], method: Method, evict_bytes: int) -> list[Timed]:
        """The runs of kernels, in seconds; on the CPU of several computations, and then each kernel has a twin."""
        ...

    def time_together(
        self, runners: Sequence[Runner], runs: int, evict_bytes: int, apart: bool
    ) -> list[Timed]:
        """``count`` runs of kernels for different computations; ``apart``: the caches are evicted before each run."""
        ...

    def is_busy_since(self) -> Callable[[], bool]:
        """A function that returns whether other processes have used the machine since this call."""
        ...

    def overheads(self, target: Target, backends: Sequence[str], begin: Begin) -> dict[str, Any]:
        """The costs of launches and transitions, as :func:`.launch.overheads` returns them; ``begin`` as there."""
        ...


class CpuBench:
    """Kernels run on the one thread pool, between guard pages."""

    tries_nan = False
    compiles_ahead = True

    def __init__(self) -> None:
        self._state = ProcessState()

    def settled(self, run: Callable[[], T]) -> T:
        return self._state.settled(run)

    def prepare(self, module: Any) -> None:
        """Nothing is to be done before the first run."""

    def after_building(self) -> None:
        self._state.after_building()

    def after_timing(self) -> None:
        self._state.check_timed()

    def outputs_of(
        self,
        kernel: Any,
        inputs: Sequence[np.ndarray],
        constants: Sequence[tvm.runtime.Tensor],
        func: relax.Function,
        at_end: bool,
    ) -> list[np.ndarray]:
        return outputs_of(kernel, inputs, constants, func, at_end)

    def runners_of(
        self, func: relax.Function, inputs: Sequence[np.ndarray], built: Mapping[str, BuiltKernel]
    ) -> dict[str, Runner]:
        activations, outputs = activation_tensors(func, inputs), output_tensors(func)
        warm = [*activations, *outputs]

        def args(made: BuiltKernel) -> list[object]:
            return [*activations, *made.constants, *outputs]

        return {
            key: Runner(made.kernel, args(made), warm, made.twin and (made.twin.kernel, args(made.twin)))
            for key, made in built.items()
        }

    def time_in_turns(self, runners: Sequence[Runner], method: Method, evict_bytes: int) -> list[Timed]:
        return runtime.time_in_turns(
            runners,
            percentile=method.percentile,
            confidence=method.confidence,
            tolerance=method.tolerance,
            min_runs=method.min_runs,
            max_runs=method.max_runs,
            max_seconds=method.max_seconds,
            max_warmup_seconds=method.max_warmup_seconds,
            evict_bytes=evict_bytes,
        )

    def time_together(
        self, runners: Sequence[Runner], runs: int, evict_bytes: int, apart: bool
    ) -> list[Timed]:
        return runtime.time_in_turns(
            runners,
            min_runs=runs,
            max_runs=runs,
            max_seconds=math.inf,
            max_warmup_seconds=0.0,
            evict_bytes=evict_bytes,
            evict_each_run=apart,
        )

    def is_busy_since(self) -> Callable[[], bool]:
        watch = LoadWatch(has_children=False)
        return lambda: watch.load().is_busy

    def overheads(self, target: Target, backends: Sequence[str], begin: Begin) -> dict[str, Any]:
        return overheads(target, backends, begin)
