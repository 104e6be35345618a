"""Plans, backends and timings as text for a terminal, 80 columns wide or more."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from .. import runtime
from ..backends.registry import BackendStatus
from ..plan.comparison import ProgramComparison
from ..plan.plan import Plan, PlannedKernel, Tie

ROWS = 15
"""So many kinds of kernels are shown, the most expensive ones; the plan itself has all."""

FAR = 10.0
"""Beyond this a ratio is only ``>10x``: a stray cost must not look like a precise one."""

_LATE, _NOTABLE_SECONDS = 1.5, 1e-3
"""A program that takes so many times its cost, and so much longer, is worth a line: calls cost microseconds, and a
shared machine is seldom that far off."""

Kernels = Sequence[PlannedKernel]


def plan_summary(name: str, plan: Plan) -> RenderableType:
    """What became of the function ``name``: a line, the share of each backend, the most expensive kernels."""
    kernels = plan.kernels
    if not kernels:
        return Group(f"[bold]{name}[/bold]: nothing has a cost, TVM compiles it as it is", *_remarks(plan))
    runs = "" if plan.measured_seconds is None else f", measured {duration(plan.measured_seconds)}"
    headline = (
        f"[bold]{name}[/bold]: {_count(len(kernels), 'kernel')}, predicted {duration(plan.seconds)}{runs}"
    )
    return Group(headline, "", backend_shares(kernels), "", kernel_table(plan), *_remarks(plan))


def backend_shares(kernels: Kernels) -> Table:
    """One row for each backend: how many kernels, and which part of the time is theirs."""
    table = Table(_left("backend"), _right("kernels"), _right("time"), _right("share"), box=None)
    total = _seconds(kernels)
    for (backend,), group in _grouped(kernels, "backend").items():
        seconds = _seconds(group)
        table.add_row(backend, str(len(group)), duration(seconds), _share(seconds, total))
    return table


def kernel_table(plan: Plan, rows: int = ROWS) -> Table:
    """One row for each kind of kernel, most expensive first: whose it is, and what the next best would have cost."""
    kernels = plan.kernels
    total = _seconds(kernels)
    # The one column that gives way when the terminal is narrow: a label has no spaces to break at.
    label, figures = (
        Column("kernel", overflow="ellipsis"),
        [_right(name) for name in ("count", "time", "share")],
    )
    table = Table(label, _left("backend"), *figures, _left("next best"), box=None)
    groups = list(_grouped(kernels, "label", "backend").items())
    for (label_text, backend), group in groups[:rows]:
        seconds = _seconds(group)
        cells = (label_text, backend, str(len(group)), duration(seconds), _share(seconds, total))
        table.add_row(*cells, _next_best(group))
    rest = [kernel for _, group in groups[rows:] for kernel in group]
    if rest:
        table.add_row(f"({_count(len(groups) - rows, 'kind')} more)", "", str(len(rest)), duration(_seconds(rest)),
                      _share(_seconds(rest), total))  # fmt: skip
    return table


def comparison_table(report: ProgramComparison) -> RenderableType:
    """One row for each candidate program: its time against the winner's, or why it was dropped."""
    table = Table(_left("program"), _right("median"), _right("against the winner"), "", box=None)
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
    if report.additive_error is not None and report.measured and report.predicted is not None:
        times = f"predicted {duration(report.predicted)}, measured {duration(report.measured)}"
        lines.append(f"{times}: additive error {report.additive_error / report.measured:+.0%}")
    if report.origin == "database":
        lines.append("compared before: the times of equal programs on an equal machine are in the database")
    return Group(table, "", *lines) if lines else table


def backend_table(backends: Iterable[BackendStatus]) -> RenderableType:
    """One row for each backend: its version, or why it cannot be used."""
    table = Table(_left("backend"), "state", box=None)
    for backend in backends:
        table.add_row(escape(backend.name), escape(backend.state))
    conflict = runtime.why_pools_conflict()
    return table if conflict is None else Group(table, "", f"warning: {conflict}")


def bench_table(medians: Mapping[str, Sequence[float]], ours: str, ratios: Mapping[str, float]) -> Table:
    """One row for each runtime; ``ratios``: the time of each other one over ours."""
    figures = [_right(name) for name in ("median", "fastest", "slowest")]
    columns = (_left("runtime"), *figures, _left(f"against {ours}"))
    table = Table(*columns, box=None)
    for name, found in medians.items():
        seconds = (statistics.median(found), min(found), max(found))
        table.add_row(name, *map(duration, seconds), _speed(ratios[name]) if name in ratios else "")
    return table


def cost_remark(plan: Plan, seconds: float) -> str | None:
    """What to do about a program that takes far longer than its kernels were measured at; None where it does not."""
    costed = plan.seconds
    if not plan.kernels or seconds < _LATE * costed or seconds < costed + _NOTABLE_SECONDS:
        return None
    return (
        f"it takes {seconds / costed:.2g} times as long as its kernels were measured at, {duration(costed)}: "
        "--refine measures them where they run"
    )


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them, to three digits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        value = seconds * factor
        if value >= 1:
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def plus_minus(seconds: float, low: float, high: float) -> str:
    """A cost with half the width of its interval: ``41.2 us +- 0.9 us``."""
    half = (high - low) / 2 if low <= seconds <= high else 0.0
    return f"{duration(seconds)} +- {duration(half)}" if half else duration(seconds)


def _remarks(plan: Plan) -> list[RenderableType]:
    """What a reader should know besides: ties, branches, how far the plan is proved, candidates without a cost."""
    lines = _ties(plan)
    if branches := plan.branches:
        now, before = duration(branches.seconds), duration(branches.split_seconds)
        stages = _count(branches.stages, "stage")
        lines.append(
            f"{branches.kernels} kernels side by side in {stages}: {now} in place of {before}, measured"
        )
    if plan.certificate is not None and not plan.proved:  # a plan that was given has no proof
        lines.append(f"not proved: a plan up to {plan.gap:.1%} cheaper may exist")
    if plan.without_cost:
        first = plan.without_cost[0]
        example = f"{first.backend} {first.label}: {first.reason}"
        lines.append(f"{_count(len(plan.without_cost), 'candidate')} without a cost, such as {example}")
    return ["", *map(escape, lines)] if lines else []


def _ties(plan: Plan, most: int = 3) -> list[str]:
    """The most expensive kernels that tie with others, and what the policy has cost."""
    tied = [kernel for kernel in plan.kernels if kernel.ties]
    if not tied:
        return []
    texts = (_tie(kernel) for kernel in sorted(tied, key=lambda kernel: -kernel.seconds))
    policy = plan.tie_policy
    more = plan.more_than_cheapest / plan.seconds if policy else 0.0
    over = f"; by the policy for ties the plan costs {more:.2%} more than the cheapest one" if policy else ""
    return [*list(dict.fromkeys(texts))[:most], f"{_count(len(tied), 'kernel')} in ties{over}"]


def _tie(kernel: PlannedKernel) -> str:
    """``onednn conv2d: tie with tvm cone, 41.2 us +- 0.9 us against 41.0 us +- 1.1 us``."""
    parts = kernel.ties[0]
    names = " and ".join(f"{part.backend} {part.label}" for part in parts)
    costs = " and ".join(map(_noisy, parts))
    return f"{kernel.backend} {kernel.label}: tie with {names}, {_noisy(kernel)} against {costs}"


def _noisy(cost: PlannedKernel | Tie) -> str:
    return plus_minus(cost.seconds, *(cost.interval or (cost.seconds, cost.seconds)))


def _next_best(kernels: Kernels) -> str:
    """Whom the kernels tie with; else the cheapest rival for the same operators, and how many times more expensive it is."""
    tied = [kernel.ties[0][0].backend for kernel in kernels if kernel.ties]
    if tied:
        return f"tie with {tied[0]}"
    ratios: dict[str, tuple[float, float]] = {}
    for kernel in kernels:
        for rival in kernel.others:
            if rival.seconds is not None:
                theirs, ours = ratios.get(rival.backend, (0.0, 0.0))
                ratios[rival.backend] = (theirs + rival.seconds, ours + kernel.seconds)
    if not ratios:
        return ""
    name, (theirs, ours) = min(ratios.items(), key=lambda item: item[1][0] / max(item[1][1], 1e-12))
    ratio = theirs / max(ours, 1e-12)
    return f"{name} >{FAR:.0f}x" if ratio > FAR else f"{name} {ratio:.2f}x"


def _speed(ratio: float) -> str:
    return f"{ratio:.2f}x slower" if ratio >= 1 else f"{1 / ratio:.2f}x faster"


def _grouped(kernels: Kernels, *keys: str) -> dict[tuple[str, ...], list[PlannedKernel]]:
    """Kernels with equal values of these fields, the most expensive group first."""
    groups: dict[tuple[str, ...], list[PlannedKernel]] = {}
    for kernel in kernels:
        groups.setdefault(tuple(str(getattr(kernel, key)) for key in keys), []).append(kernel)
    return dict(sorted(groups.items(), key=lambda item: -_seconds(item[1])))


def _seconds(kernels: Kernels) -> float:
    return sum(kernel.seconds for kernel in kernels)


def _share(seconds: float, total: float) -> str:
    return f"{seconds / total:.1%}" if total else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _left(title: str) -> Column:
    return Column(title, no_wrap=True)


def _right(title: str) -> Column:
    return Column(title, justify="right", no_wrap=True)
