"""The recheck of a program: whether it takes what its kernels cost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from .. import runtime
from ..annotations import PLAN
from ..cost.model import Capability, CostModel
from ..errors import CollageError
from ..lowering.build import build
from ..profile.digest import program_digest
from ..profile.inputs import dummy_inputs, why_not_runnable
from ..profile.programs import ProgramWorker

LOGGER = logging.getLogger(__name__)

_LATE = 1.3
_NOTABLE_SECONDS = 50e-6
"""A program is late that takes so many times what its kernels cost, and by so much more: calls cost microseconds, and a
shared machine slows down by itself."""

_ROUNDS, _ROUND_SECONDS = 5, 0.05


@dataclass(frozen=True, slots=True)
class Rechecked:
    """A program, and what is known of its time."""

    mod: IRModule
    """The final module."""
    executable: relax.VMExecutable
    seconds: float | None = None
    """Of a run; None: not known."""
    remarks: tuple[str, ...] = ()
    """Why it was not rechecked."""


def in_time(
    passes: Callable[..., tvm.transform.Pass], imported: IRModule, target: Target, model: CostModel
) -> Rechecked:
    """The program of ``passes()``. Where it takes far more than its kernels cost, that of ``passes(correct=True)`` if it
    is faster.
    """
    with target:
        final = passes()(imported)
        executable = build(final, target)
        if reason := model.why_not(Capability.RUN_PROGRAMS):
            return Rechecked(final, executable, None, (f"the program was not timed: {reason}",))
        seconds = seconds_of(final, executable, model)
        first = Rechecked(final, executable, seconds)
        if seconds is None or not is_late(seconds, final):
            return first
        LOGGER.info("the program takes %.3g s, far more than its kernels cost: planned again", seconds)
        corrected = passes(correct=True)(imported)
        if program_digest(corrected) == program_digest(final):
            return first
        another = build(corrected, target)
        taken = seconds_of(corrected, another, model)
        return first if taken is None or taken >= seconds else Rechecked(corrected, another, taken)


def seconds_of(mod: IRModule, executable: relax.VMExecutable, model: CostModel) -> float | None:
    """Seconds of a run of a final module, in a process that has seen nothing of its kernels; kept with the costs.

    None where it is not known and cannot be found out: other machines, locked databases, unknown shapes, programs that
    fail.
    """
    if model.why_not(Capability.RUN_PROGRAMS) is not None or why_not_runnable(mod) is not None:
        return None
    try:
        return model.known_or_measured(
            f"program {program_digest(mod)}", "the program", lambda: _measured(mod, executable)
        )
    except CollageError:  # a user who runs the program is told
        return None


def is_late(seconds: float, final: IRModule) -> bool:
    """Whether a program is so slow that some cost in its plan must be wrong."""
    main = final["main"]
    if not PLAN.on(main):
        return False
    predicted = PLAN.read(main).seconds
    return seconds > max(_LATE * predicted, predicted + _NOTABLE_SECONDS)


def _measured(mod: IRModule, executable: relax.VMExecutable) -> float:
    name = "program"
    with ProgramWorker(dummy_inputs(mod), runtime.num_threads()) as worker:
        if reason := worker.add(name, executable):
            raise CollageError(reason)
        medians = worker.timed_in_turns([name], _ROUNDS, _ROUND_SECONDS)
    if isinstance(medians, str):
        raise CollageError(medians)
    return median(medians[name])
