"""Backends, timings and comparisons of programs as text for a terminal, 80 columns wide or more."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from .. import runtime
from ..machine.load import Load
from ..plan.comparison import ProgramComparison
from ..plan.plan import Plan
from .cells import additive_text, duration, left, right

if TYPE_CHECKING:
    from ..backends.registry import BackendStatus

_LATE, _NOTABLE_SECONDS = 1.5, 1e-3
"""A program gets a remark if its time exceeds ``_LATE`` times its cost by more than ``_NOTABLE_SECONDS``.

The rest is noise: calls take microseconds, and a shared machine is seldom that much slower.
"""


def comparison_line(report: ProgramComparison) -> str:
    """Which program was the fastest, by how much, and when the programs were timed.

    Ours is also the result if another program took less time, but by less than the noise.
    """
    seconds = {each.name: each.seconds for each in report.programs if each.seconds is not None}
    best = seconds.pop(report.winner)
    others = [
        f"{name} {value / best:.2f}x" for name, value in sorted(seconds.items(), key=lambda one: one[1])
    ]
    left_out = [each for each in report.programs if each.seconds is None]
    when = f" on {datetime.fromtimestamp(report.created):%Y-%m-%d}" if report.origin == "database" else ""
    sizes = f" over {report.samples} sizes" if report.samples > 1 else ""
    is_fastest = all(round(value / best, 2) >= 1 for value in seconds.values())
    verdict = "is the fastest program" if is_fastest else "is chosen, no other program is surely faster"
    text = f"{report.winner} {verdict}{sizes}{when}: {', '.join(others)}" if others else ""
    if left_out:
        text += f"{'; ' if text else ''}not timed: " + ", ".join(
            f"{each.name} ({each.reason})" for each in left_out
        )
    remark = next((each.remark for each in report.programs if each.name == report.winner), "")
    if remark:
        text += f"{'; ' if text else ''}{remark}"
    busy = (
        f"; others kept {report.others:.1f} cores busy meanwhile"
        if text and Load(report.others).is_busy
        else ""
    )
    return escape(text + busy)


def comparison_table(report: ProgramComparison) -> RenderableType:
    """One row for each candidate program: its time and the ratio to the winner's, or why it was dropped."""
    table = Table(left("program"), right("median"), right("against the winner"), "", box=None)
    seconds = {each.name: each.seconds for each in report.programs if each.seconds is not None}
    best = seconds.get(report.winner, 0.0)
    for program in sorted(report.programs, key=lambda each: seconds.get(each.name, math.inf)):
        name = program.name
        if name in seconds:
            chosen = "chosen" if name == report.winner else ""
            table.add_row(name, duration(seconds[name]), f"{seconds[name] / best:.2f}x", chosen)
        else:
            table.add_row(name, "", "", escape(program.reason))
    lines: list[RenderableType] = []
    if report.additive_error is not None and report.measured and report.predicted:
        times = f"predicted {duration(report.predicted)}, measured {duration(report.measured)}"
        lines.append(f"{times}: {additive_text(report.additive_error, report.predicted)}")
    if report.origin == "database":
        lines.append("compared before: the times of equal programs on an equal machine are in the database")
    return Group(table, "", *lines) if lines else table


def backend_table(backends: Iterable[BackendStatus]) -> RenderableType:
    """One row for each backend: its version, or why it cannot be used; below, its library with the newest version."""
    from ..backends.newest import KNOWN_ON, library_text  # needs TVM; other tables do not

    rows = list(backends)
    table = Table(left("backend"), "state", box=None)
    libraries = Table(left("backend"), f"library (newest: known on {KNOWN_ON})", box=None)
    for backend in rows:
        table.add_row(escape(backend.name), escape(backend.state))
        if text := library_text(backend.name):
            libraries.add_row(escape(backend.name), escape(text))
    conflict = runtime.why_pools_conflict()
    return Group(table, "", libraries, *(() if conflict is None else ("", f"warning: {conflict}")))


def bench_table(medians: Mapping[str, Sequence[float]], ours: str, ratios: Mapping[str, float]) -> Table:
    """One row for each runtime; ``ratios`` are the times of the others over ours."""
    figures = [right(name) for name in ("median", "fastest", "slowest")]
    columns = (left("runtime"), *figures, left(f"against {ours}"))
    table = Table(*columns, box=None)
    for name, found in medians.items():
        seconds = (statistics.median(found), min(found), max(found))
        table.add_row(name, *map(duration, seconds), _speed(ratios[name]) if name in ratios else "")
    return table


def cost_remark(plan: Plan, seconds: float) -> str | None:
    """What to do about a program that takes far longer than its kernels cost; None where it does not.

    None also for costs that are weighed over several sizes: a run has one.
    """
    costed = plan.seconds
    if (
        not plan.has_costs
        or plan.at_samples
        or seconds < _LATE * costed
        or seconds < costed + _NOTABLE_SECONDS
    ):
        return None
    return (
        f"it takes {seconds / costed:.2g} times as long as its kernels were measured at, {duration(costed)}: "
        "--refine measures them in the running program"
    )


def _speed(ratio: float) -> str:
    return f"{ratio:.2f}x slower" if ratio >= 1 else f"{1 / ratio:.2f}x faster"
