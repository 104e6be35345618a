"""The recheck of a program: whether it is as fast as the costs of its kernels say."""

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
from ..profile.digest import planned_backends, program_digest
from ..profile.inputs import dummy_inputs, why_not_runnable
from ..profile.programs import ProgramWorker

LOGGER = logging.getLogger(__name__)

_LATE = 1.3
_NOTABLE_SECONDS = 50e-6
"""A program is late if it takes ``_LATE`` times the cost of its kernels, and ``_NOTABLE_SECONDS`` more than that cost.
Calls take microseconds, and a shared machine may be slower for a while."""

_ROUNDS, _ROUND_SECONDS = 5, 0.05


@dataclass(frozen=True, slots=True)
class Rechecked:
    """A program, and its time if it is known."""

    mod: IRModule
    """The final module."""
    executable: relax.VMExecutable
    seconds: float | None = None
    """Seconds of a run; None: not known."""
    remarks: tuple[str, ...] = ()
    """Why the program was not rechecked."""


def in_time(
    passes: Callable[..., tvm.transform.Pass], imported: IRModule, target: Target, model: CostModel
) -> Rechecked:
    """The program of ``passes()``, or that of ``passes(correct=True)``.

    The second one is built only if the first takes far longer than its kernels cost, and is the result if it is faster.
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
    """Seconds of a run of a final module in a new process; stored in the database of costs.

    None where they are not known and cannot be measured: on other machines, with a locked database, with unknown
    shapes, or if the program fails.
    """
    if model.why_not(Capability.RUN_PROGRAMS) is not None or why_not_runnable(mod) is not None:
        return None
    try:
        return model.known_or_measured(
            f"program {program_digest(mod)}",
            planned_backends(mod),
            "the program",
            lambda: _measured(mod, executable),
        )
    except CollageError:  # the program fails: its user will see the error
        return None


def is_late(seconds: float, final: IRModule) -> bool:
    """Whether a program takes far longer than its plan costs, so that some cost must be wrong."""
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
