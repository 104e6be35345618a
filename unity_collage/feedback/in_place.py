"""What kernels take where they stand: programs with ticks that run in turns, so that drift hits all alike."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from tvm.ir import IRModule

from ..annotations import PLAN
from ..processes.child import last_line
from ..profile import Contest, by_candidate
from .maker import Maker

TURNS = 5
"""Rounds in which every program with ticks runs for its share of the time."""

_SECONDS = 0.05
"""That each program runs in a turn, about."""


@dataclass(slots=True)
class Ticking:
    """A program with ticks."""

    plan: dict[str, Any]
    kernels: list[str]
    seconds: list[list[float]] = field(default_factory=list[list[float]])
    """Of each call of a kernel, by turn."""

    def medians(self) -> list[float]:
        return [statistics.median(turns) for turns in zip(*self.seconds, strict=True)]


@dataclass(slots=True)
class InPlace:
    """Programs whose kernels are timed in place. Use as a context manager: their files and memory are freed."""

    maker: Maker
    contest: Contest
    programs: dict[str, Ticking] = field(default_factory=dict[str, Ticking])

    def add(self, name: str, mod: IRModule) -> str | None:
        """Let the program of a final module take part; the reason if it cannot."""
        try:
            kernels, executable = self.maker.ticking(mod)
        except Exception as error:  # a compiler failed: then nothing is learned of this one
            return f"{type(error).__name__}: {last_line(error)}"
        if (reason := self.contest.enter(_entry(name), executable)) is not None:
            return reason
        self.programs[name] = Ticking(PLAN.read(mod["main"]), kernels)
        return None

    def run(self, paces: dict[str, float]) -> dict[str, str]:
        """Time all programs anew; ``paces`` are the seconds of a run of each. Why some cannot be timed: they are out.

        A program without a pace is out as well.
        """
        failed: dict[str, str] = {}
        for name in [name for name in self.programs if name not in paces]:
            self._drop(name)
        for program in self.programs.values():
            program.seconds.clear()
        for _ in range(TURNS):
            for name, program in list(self.programs.items()):
                runs = max(3, min(100, int(_SECONDS / paces[name])))
                seconds = self.contest.ticks(_entry(name), len(program.kernels), rounds=runs)
                if isinstance(seconds, str):
                    failed[name] = seconds
                    self._drop(name)
                else:
                    program.seconds.append(seconds)
        return failed

    def by_candidate(self) -> dict[int, list[float]]:
        """Seconds of each candidate that is in any of the programs, in each of those."""
        found: dict[int, list[float]] = {}
        for program in self.programs.values():
            for candidate, seconds in by_candidate(program.plan, program.kernels, program.medians()).items():
                found.setdefault(candidate, []).append(seconds)
        return found

    def total(self, name: str) -> float:
        """Seconds of all kernels of a program together."""
        return sum(self.programs[name].medians())

    def _drop(self, name: str) -> None:
        del self.programs[name]
        self.contest.leave(_entry(name))

    def __enter__(self) -> InPlace:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.programs):
            self._drop(name)


def _entry(name: str) -> str:
    return f"{name}, with ticks"
