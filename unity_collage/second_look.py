"""A second look at a program: whether it takes what its kernels cost."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from . import runtime
from .contest import Contest, harmless_inputs, program_digest, why_not_runnable
from .cost.workload import CostModel, Remembering
from .errors import CollageError

_LATE = 1.3
_NOTABLE_SECONDS = 50e-6
"""A program is late that takes so many times what its kernels cost, and by so much more: calls cost microseconds, and a
shared machine slows down by itself."""

_ROUNDS, _ROUND_SECONDS = 5, 0.05


def seconds_of(mod: IRModule, executable: relax.VMExecutable, model: CostModel) -> float | None:
    """Seconds of a run of a final module, in a process that has seen nothing of its kernels; kept with the prices.

    None where it is not known and cannot be found out: other machines, locked databases, unknown shapes, programs that
    fail.
    """
    if not isinstance(model, Remembering) or why_not_runnable(mod) is not None:
        return None
    try:
        return model.remembered(
            f"program {program_digest(mod)}", "the program", lambda: _measured(mod, executable)
        )
    except CollageError:  # whoever runs the program is told
        return None


def is_late(seconds: float, plan: Mapping[str, Any]) -> bool:
    """Whether the program of a plan is so slow that some price must be wrong."""
    priced = float(plan["seconds"])
    return bool(plan["kernels"]) and seconds > max(_LATE * priced, priced + _NOTABLE_SECONDS)


def _measured(mod: IRModule, executable: relax.VMExecutable) -> float:
    name = "program"
    with Contest(harmless_inputs(mod), runtime.num_threads()) as contest:
        if reason := contest.enter(name, executable):
            raise CollageError(reason)
        medians = contest.race([name], _ROUNDS, _ROUND_SECONDS)
    if isinstance(medians, str):
        raise CollageError(medians)
    return median(medians[name])
