"""The kernels of running programs, each timed where it stands."""

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
"""Rounds in which programs, or numbers of threads, run in turns; the first warms up."""
_SECONDS = 0.05
"""About how long each runs in a turn."""

Turns = list[list[float]]
"""Seconds of each kernel that a program calls, in order, by turn."""


@dataclass(frozen=True, slots=True)
class Run:
    """An instrumented program as it is to run."""

    name: str
    kernels: int
    threads: int | None = None
    """None: all."""


@dataclass(frozen=True, slots=True)
class KernelProfiler:
    """The instrumented programs of a worker. What cannot be done is a CollageError."""

    worker: ProgramWorker
    target: Target

    def add(self, name: str, mod: IRModule) -> list[str]:
        """Instrument the program of a final module and load it; the kernels that it calls, in order."""
        try:
            lowered = lower(mod, self.target)
            executable = link(instrumented(lowered), self.target)
        except Exception as error:  # a foreign compiler failed
            raise CollageError(f"{type(error).__name__}: {last_line(error)}") from error
        if reason := self.worker.add(name, executable):
            raise CollageError(reason)
        return called_kernels(lowered["main"])

    def turns(self, runs: Sequence[Run]) -> list[Turns]:
        """The seconds of the kernels of each run, by turn: all run in turns, so that drift hits all alike."""
        found: list[Turns] = [[] for _ in runs]
        rounds = 3
        for _ in range(_TURNS):
            for turns, run in zip(found, runs, strict=True):
                seconds = self.worker.kernel_seconds(run.name, run.kernels, rounds, run.threads)
                if isinstance(seconds, str):
                    raise CollageError(f"{run.name}: {seconds}")
                turns.append(seconds)
            rounds = max(3, min(100, int(_SECONDS / max(sum(turns[0]) for turns in found))))
        return [turns[1:] for turns in found]


def medians(turns: Sequence[Sequence[float]]) -> list[float]:
    """Of each kernel."""
    return [statistics.median(of_kernel) for of_kernel in zip(*turns, strict=True)]


def by_candidate(plan: Plan, kernels: Sequence[str], seconds: Sequence[float]) -> Mapping[int, float]:
    """Seconds of each kernel of a plan, by candidate, from those of the ``kernels`` that the program calls in order."""
    by_function: dict[str, list[float]] = {}
    for kernel, value in zip(kernels, seconds, strict=True):
        by_function.setdefault(kernel, []).append(value)
    return {
        kernel.candidate: statistics.mean(by_function[kernel.function])
        for kernel in plan.kernels
        if kernel.function in by_function
    }
