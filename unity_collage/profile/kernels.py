"""Clocked: programs with a clock between their kernels, which run in turns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.ir import IRModule
from tvm.target import Target

from ..errors import CollageError
from ..lowering.build import link, lower
from ..processes.child import last_line
from .contest import Contest
from .ticks import InsertTicks, ticked_kernels

_TURNS = 10
"""Rounds in which programs, or numbers of threads, run in turns; the first warms up."""
_SECONDS = 0.05
"""That each runs in a turn, about."""

Run = tuple[str, int, int | None]
"""The name of a program, its number of kernels, its threads or None for all."""


@dataclass(frozen=True, slots=True)
class Clocked:
    """The programs of a contest that are timed kernel by kernel. What cannot be done is a CollageError."""

    contest: Contest
    target: Target

    def enter(self, name: str, mod: IRModule) -> list[str]:
        """Let the program of a final module take part; the kernels that it calls, in order."""
        try:
            lowered = lower(mod, self.target)
            executable = link(InsertTicks()(lowered), self.target)
        except Exception as error:  # a foreign compiler failed
            raise CollageError(f"{type(error).__name__}: {last_line(error)}") from error
        if reason := self.contest.enter(name, executable):
            raise CollageError(reason)
        return ticked_kernels(lowered["main"])

    def turns(self, runs: Sequence[Run]) -> list[list[list[float]]]:
        """The seconds of the kernels of each run, by turn."""
        found: list[list[list[float]]] = [[] for _ in runs]
        rounds = 3
        for _ in range(_TURNS):
            for position, (name, kernels, threads) in enumerate(runs):
                seconds = self.contest.ticks(name, kernels, rounds, threads)
                if isinstance(seconds, str):
                    raise CollageError(seconds)
                found[position].append(seconds)
            rounds = max(3, min(100, int(_SECONDS / max(sum(turns[0]) for turns in found))))
        return [turns[1:] for turns in found]


def medians(turns: Sequence[Sequence[float]]) -> list[float]:
    """Of each kernel."""
    return [statistics.median(of_kernel) for of_kernel in zip(*turns, strict=True)]


def by_candidate(
    plan: Mapping[str, Any], kernels: Sequence[str], seconds: Sequence[float]
) -> dict[int, float]:
    """Seconds of each kernel of a plan, by candidate, from those of the ``kernels`` that the program calls in order."""
    by_function: dict[str, list[float]] = {}
    for kernel, value in zip(kernels, seconds, strict=True):
        by_function.setdefault(kernel, []).append(value)
    return {
        int(kernel["candidate"]): statistics.mean(by_function[kernel["function"]])
        for kernel in plan["kernels"]
        if kernel["function"] in by_function
    }
