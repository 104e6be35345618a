"""A second look at a program: whether it takes what its kernels cost."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from .. import runtime
from ..annotations import PLAN
from ..cost.model import CostModel, Remembering
from ..errors import CollageError
from ..lowering.build import build
from ..profile import Contest, harmless_inputs, program_digest, why_not_runnable

_LATE = 1.3
_NOTABLE_SECONDS = 50e-6
"""A program is late that takes so many times what its kernels cost, and by so much more: calls cost microseconds, and a
shared machine slows down by itself."""

_ROUNDS, _ROUND_SECONDS = 5, 0.05


def in_time(
    passes: Callable[..., tvm.transform.Pass], imported: IRModule, target: Target, model: CostModel
) -> tuple[IRModule, relax.VMExecutable, float | None]:
    """The final module of ``passes()``, its program, and the seconds that it takes as far as they are known.

    Where that is far more than its kernels cost, those of ``passes(correct=True)`` if its program is faster.
    """
    with target:
        final = passes()(imported)
        executable = build(final, target)
        seconds = seconds_of(final, executable, model)
        if seconds is None or not is_late(seconds, final):
            return final, executable, seconds
        corrected = passes(correct=True)(imported)
        if program_digest(corrected) == program_digest(final):
            return final, executable, seconds
        another = build(corrected, target)
        taken = seconds_of(corrected, another, model)
        if taken is None or taken >= seconds:
            return final, executable, seconds
        return corrected, another, taken


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


def is_late(seconds: float, final: IRModule) -> bool:
    """Whether a program is so slow that some price in its plan must be wrong."""
    main = final["main"]
    if not PLAN.on(main):
        return False
    priced = float(PLAN.read(main)["seconds"])
    return seconds > max(_LATE * priced, priced + _NOTABLE_SECONDS)


def _measured(mod: IRModule, executable: relax.VMExecutable) -> float:
    name = "program"
    with Contest(harmless_inputs(mod), runtime.num_threads()) as contest:
        if reason := contest.enter(name, executable):
            raise CollageError(reason)
        medians = contest.race([name], _ROUNDS, _ROUND_SECONDS)
    if isinstance(medians, str):
        raise CollageError(medians)
    return median(medians[name])
