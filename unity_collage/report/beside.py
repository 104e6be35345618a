"""The plan that the program runs, for the page of an explanation: its sizes, its time, its remarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..plan.explanation import Explanation
from ..plan.plan import VIEW, Plan
from .cells import additive_text, counted, duration
from .in_place import in_place
from .plans import day_of, for_sizes


def beside(
    explanation: Explanation, plan: Plan | None, name: str, profiled: Sequence[str] = ()
) -> dict[str, Any]:
    """``label``, ``measured``, ``notice``, ``remarks``, ``in_place``, ``launches``, and ``devices`` by function.

    ``profiled``: the titles of all plans that a profile has passed.

    An explanation belongs to the plan that the search found. If another program was faster, the program runs another
    plan. Then the page says which, and leaves out the time and the remarks.
    """
    facts: dict[str, Any] = {
        "label": name,
        "measured": "",
        "notice": "",
        "remarks": [],
        "devices": {},
        "in_place": None,
    }
    if plan is None:
        return facts
    facts["label"] = titled(name, plan)
    if not is_explained(explanation, plan):
        return {**facts, "notice": _notice(plan)}
    error = plan.additive_error
    more = [] if error is None else [additive_text(error, plan.seconds)]
    devices = {kernel.function: kernel.device for kernel in plan.kernels if kernel.device}
    return {
        **facts,
        "measured": measured_text(plan),
        "remarks": [*more, *plan.remarks],
        "devices": devices,
        "launches": dict(plan.launches),
        "in_place": in_place(explanation, plan, profiled),
    }


def titled(name: str, plan: Plan) -> str:
    """The name of a function with the sizes that its plan is for: ``main_batch_8 (batch 8)``."""
    return f"{name}{for_sizes(plan)}"


def is_explained(explanation: Explanation, plan: Plan) -> bool:
    """Whether the kernels of the plan are those of the explanation."""
    chosen = [explanation.by_id[kernel.candidate] for kernel in explanation.kernels]
    explained = [
        (each.backend, each.label, tuple(explanation.bindings[index].name for index in each.bindings))
        for each in chosen
        if each.backend != VIEW
    ]
    return explained == [(kernel.backend, kernel.label, kernel.bindings) for kernel in plan.kernels]


def measured_text(plan: Plan) -> str:
    """``5.11 ms``, of another percentile than the median ``p90 5.11 ms``; empty where it was not measured."""
    which = "" if plan.percentile == 50.0 else f"p{plan.percentile:g} "
    if plan.measured_seconds is None:
        return ""
    return f"{which}{duration(plan.measured_seconds)}{day_of(plan)}"


def _notice(plan: Plan) -> str:
    """Which program runs instead, and why."""
    kernels = counted(len(plan.kernels), "kernel")
    only = f" ({plan.kernels[0].backend} {plan.kernels[0].label})" if len(plan.kernels) == 1 else ""
    what = f"The program runs another plan of {kernels}{only}. This page explains the plan of the search"
    report = plan.comparison
    if report is None:
        return f"{what}."
    seconds = {each.name: each.seconds for each in report.programs if each.seconds is not None}
    ours, best = seconds.get("collage"), seconds.get(report.winner)
    times = f": {duration(best)} against {duration(ours)}" if ours and best else ""
    return f"{what}; {report.winner} was the fastest when whole programs were timed in turns{times}."
