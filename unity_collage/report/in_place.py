"""The times of kernels in the running program beside those that the plan predicts, for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..plan.explanation import Explanation
from ..plan.in_place import InPlace
from ..plan.plan import VIEW, Plan, PlannedKernel
from .cells import counted, duration
from .plans import on_day
from .words import sentence

_DISTURBED = 1.1
"""A machine is disturbed if all kernels of a run take this many times as long as the sum of their medians."""

HOW = "not known yet: unity-collage profile MODEL --report FILE.html writes this page with them (on CPUs)"


def in_place(explanation: Explanation, plan: Plan, profiled: Sequence[str]) -> dict[str, Any]:
    """``says``, ``kernels`` and ``rows`` for the page of an explained plan; ``profiled``: titles of plans with times.

    ``kernels`` has an entry for each kernel of the explanation, which may be None. It has the ``seconds`` in place,
    and the ``low`` and ``high`` of the runs. It also has the ``predicted`` seconds with the launch, None if they are
    not compared. ``rows`` add up to the whole program: a name, what is predicted and what was measured.
    """
    times = plan.in_place
    if times is None:
        how = f"not known: the profiled run used {', '.join(profiled)}" if profiled else HOW
        return {"says": f"Times of kernels in the running program are {how}.", "kernels": [], "rows": []}
    left = iter(zip(plan.kernels, times.kernels, strict=True))
    kernels: list[dict[str, Any] | None] = []
    for each in explanation.kernels:
        if explanation.by_id[each.candidate].backend == VIEW:
            kernels.append(None)
            continue
        kernel, time = next(left)
        predicted = plan.predicted(kernel) if plan.why_not_compared is None else None
        spread = time and {
            "seconds": time.seconds,
            "low": time.low,
            "high": time.high,
            "predicted": predicted,
        }
        kernels.append(spread)
    return {"says": _says(plan, times), "kernels": kernels, "rows": list(_rows(plan, times))}


def disturbed(medians: float, together: float) -> str | None:
    """Why the times of kernels are doubtful, or None. The times are in seconds, as in :class:`.InPlace`."""
    if together <= _DISTURBED * medians:
        return None
    return (
        f"the machine is disturbed: in a median run all kernels take {duration(together)}, and the medians "
        f"of the kernels add up to {duration(medians)}; profile again when it is idle"
    )


def _says(plan: Plan, times: InPlace) -> str:
    """How the times were taken, and why they are not compared."""
    runs, threads = counted(times.runs, "run"), counted(times.threads, "thread")
    says = [f"medians of {runs} on {threads}, timed kernel by kernel{on_day(times.since)}"]
    if plan.why_not_compared is not None:
        says.append(f"not compared: {plan.why_not_compared}")
    if reason := disturbed(times.medians, times.together):
        says.append(reason)
    return " ".join(map(sentence, says))


def _rows(plan: Plan, times: InPlace) -> Iterator[dict[str, Any]]:
    """The parts of the plan's cost beside those of the program's time; the last row is their sum."""
    pairs = list(zip(plan.kernels, times.kernels, strict=True))
    alone = [kernel for kernel, time in pairs if time is not None]
    rest = [kernel for kernel, time in pairs if time is None]
    measured = sum(time.seconds for time in times.kernels if time is not None)

    def row(name: str, predicted: float, seconds: float | None) -> dict[str, Any]:
        is_compared = plan.why_not_compared is None
        return {"name": name, "predicted": round(predicted, 12) if is_compared else None, "seconds": seconds}

    yield row(f"{counted(len(alone), 'kernel')} with launches", _predicted(plan, alone), measured)
    if rest:
        what = "side by side" if times.side_by_side else "not timed"
        yield row(
            f"{counted(len(rest), 'kernel')} {what}", _predicted(plan, rest), times.side_by_side or None
        )
    if times.program is not None:
        transitions = max(0.0, plan.seconds - _predicted(plan, plan.kernels))
        between = times.program - measured - times.side_by_side
        yield row("transitions, and all else", transitions, between)
        yield row("the whole program", plan.seconds, times.program)


def _predicted(plan: Plan, kernels: Sequence[PlannedKernel]) -> float:
    return sum(plan.predicted(kernel) or 0.0 for kernel in kernels)
