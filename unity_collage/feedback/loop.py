"""The feedback loop: plan, profile the program kernel by kernel, correct the costs, plan again.

Costs are measured for single kernels, but the time of a program is not the sum of them. CorrectCosts and the refinement
both run this loop. They differ in how they correct costs, and in what they do with a new plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tvm.ir import IRModule

from ..annotations import PLAN
from ..errors import CollageError
from ..profile.kernels import KernelProfiler, Run
from .observed import Observation

Correct = Callable[[Sequence[Observation]], IRModule | None]
"""Turns all observations into the module with corrected costs; returns None if there is nothing to correct."""

Plan = Callable[[IRModule], tuple[str, IRModule] | None]
"""Turns a module with costs into the name and the final module of its plan.

Returns None if no program is to be observed.
"""

Failed = Callable[[str, str], None]
"""Called with the name of a program that does not run, and the reason; an exception from it ends the loop."""


@dataclass(slots=True)
class FeedbackLoop:
    """Runs instrumented programs in turns."""

    profiler: KernelProfiler
    failed: Failed
    programs: dict[str, tuple[IRModule, list[str]]] = field(default_factory=dict)
    """Final modules by name, with the kernels that they call."""
    observations: dict[str, Observation] = field(default_factory=dict)

    def observe(self, fresh: Sequence[tuple[str, IRModule]]) -> None:
        """Run these programs in turns with the earlier ones; a program that does not run is removed."""
        added = [name for name, mod in fresh if self._add(name, mod)]
        while added and self.programs:
            runs = [Run(_instrumented(name), len(kernels)) for name, (_, kernels) in self.programs.items()]
            try:
                turns = self.profiler.turns(runs)
            except CollageError as error:
                self._drop_failing(str(error))
                continue
            self.observations = {
                name: Observation(PLAN.read(mod["main"]), tuple(kernels), of_program)
                for (name, (mod, kernels)), of_program in zip(self.programs.items(), turns, strict=True)
            }
            break

    def run(self, plan: Plan, correct: Correct, rounds: int) -> None:
        """Correct the costs by the observations, plan again, observe the new program; at most ``rounds`` times."""
        for _ in range(rounds):
            corrected = correct(list(self.observations.values())) if self.observations else None
            planned = None if corrected is None else plan(corrected)
            if planned is None:
                return
            self.observe([planned])

    def close(self) -> None:
        """Remove all programs, which frees their files and memory."""
        for name in list(self.programs):
            self._remove(name)

    def _add(self, name: str, mod: IRModule) -> bool:
        try:
            self.programs[name] = mod, self.profiler.add(_instrumented(name), mod)
        except CollageError as error:
            self.failed(name, str(error))
            return False
        return True

    def _drop_failing(self, reason: str) -> None:
        """Remove the program that the reason names, or all programs where it names none."""
        named = [name for name in self.programs if reason.startswith(f"{_instrumented(name)}: ")]
        dropped = named[:1] or list(self.programs)
        for name in dropped:
            self._remove(name)
            self.failed(name, reason.removeprefix(f"{_instrumented(name)}: "))

    def _remove(self, name: str) -> None:
        del self.programs[name]
        self.observations.pop(name, None)
        self.profiler.worker.remove(_instrumented(name))

    def __enter__(self) -> FeedbackLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _instrumented(name: str) -> str:
    return f"{name}, instrumented"
