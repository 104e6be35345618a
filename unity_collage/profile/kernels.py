"""Times the kernels of running programs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm.ir import IRModule
from tvm.target import Target

from ..errors import CollageError, last_line
from ..lowering.build import link, lower
from ..plan.plan import Plan
from .instrument import called_kernels, instrumented
from .programs import ProgramWorker

_TURNS = 10
"""How many turns each program, or each number of threads, has; the first one is a warm-up."""
_SECONDS = 0.05
"""About how long a program runs in one turn."""

Turns = list[list[float]]
"""For each turn, the seconds of each kernel that a program calls, in order."""


@dataclass(frozen=True, slots=True)
class Run:
    """How to run an instrumented program."""

    name: str
    kernels: int
    threads: int | None = None
    """How many threads run it; None: all."""


@dataclass(frozen=True, slots=True)
class KernelProfiler:
    """Builds instrumented programs and times their kernels in a worker; failures are raised as CollageError."""

    worker: ProgramWorker
    target: Target

    def add(self, name: str, mod: IRModule) -> list[str]:
        """Instrument the program of a final module and load it; the result is the kernels that it calls, in order."""
        try:
            lowered = lower(mod, self.target)
            executable = link(instrumented(lowered), self.target)
        except Exception as error:  # a foreign compiler failed
            raise CollageError(f"{type(error).__name__}: {last_line(error)}") from error
        if reason := self.worker.add(name, executable):
            raise CollageError(reason)
        return called_kernels(lowered["main"])

    def turns(self, runs: Sequence[Run]) -> list[Turns]:
        """The seconds of the kernels of each run, by turn. All run in turns, so that drift affects all alike."""
        found: list[Turns] = [[] for _ in runs]
        rounds = 3
        for _ in range(_TURNS):
            for turns, run in zip(found, runs, strict=True):
                seconds = self.worker.kernel_seconds(run.name, run.kernels, rounds, run.threads)
                if isinstance(seconds, str):
                    raise CollageError(f"{run.name}: {seconds}")
                turns.append(seconds)
            rounds = max(3, min(100, int(_SECONDS / max(1e-9, *(sum(turns[0]) for turns in found)))))
        return [turns[1:] for turns in found]


def medians(turns: Sequence[Sequence[float]]) -> list[float]:
    """The median seconds of each kernel over all turns."""
    return [statistics.median(of_kernel) for of_kernel in zip(*turns, strict=True)]


def by_candidate(plan: Plan, kernels: Sequence[str], seconds: Sequence[float]) -> Mapping[int, float]:
    """The seconds of each kernel of a plan, by candidate.

    ``seconds`` are those of ``kernels``, which the program calls in this order.
    """
    by_function: dict[str, list[float]] = {}
    for kernel, value in zip(kernels, seconds, strict=True):
        by_function.setdefault(kernel, []).append(value)
    return {
        kernel.candidate: statistics.mean(by_function[kernel.function])
        for kernel in plan.kernels
        if kernel.function in by_function
    }
