"""A dry run as text for a terminal: candidates, refusals, and how long measuring would take."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from ..inspection.dry_run import DryRun, FunctionDryRun, Refusals
from .cells import counted, duration, left, right

REASONS = 3
"""How many reasons of each backend are shown, the most frequent ones; the data has all."""


def dry_run_summary(found: DryRun) -> RenderableType:
    """A table of candidates and one of refusals for each function, and a line about measuring."""
    parts: list[RenderableType] = []
    for name, function in found.functions.items():
        parts += [*_function(name, function), ""]
    return Group(*parts, *map(escape, _measuring(found)))


def _function(name: str, found: FunctionDryRun) -> Iterator[RenderableType]:
    total = sum(rule.candidates for rule in found.rules)
    operators = counted(found.bindings, "binding")
    yield f"[bold]{escape(name)}[/bold]: {operators}, {counted(total, 'candidate')}"
    table = Table(left("backend"), left("rule"), right("candidates"), right("kernels"), box=None)
    for rule in found.rules:
        table.add_row(escape(rule.backend), escape(rule.rule), str(rule.candidates), str(rule.kernels))
    yield table
    if found.declined:
        yield ""
        yield _refusals(found.declined)
    if found.choice is None:
        yield "only one plan is possible: nothing is measured for it"


def _refusals(declined: tuple[Refusals, ...]) -> Table:
    reason = Column("reason", overflow="fold")
    table = Table(left("declined by"), right("bindings"), right("times"), reason, box=None)
    for each in declined:
        first = (escape(each.backend), str(each.bindings))
        for text, count in each.reasons[:REASONS]:
            table.add_row(*first, str(count), escape(text))
            first = ("", "")
        if rest := each.reasons[REASONS:]:
            times = sum(count for _, count in rest)
            table.add_row("", "", str(times), f"({counted(len(rest), 'reason')} more)")
    return table


def _measuring(found: DryRun) -> Iterator[str]:
    there = f"{found.known} of {counted(found.kernels, 'kernel')} are in {found.database}"
    if not found.unknown:
        yield f"{there}: only kernels that the plan depends on are measured, once more and together"
        return
    basis = f"as {found.pace.kernels} costs did here" if found.pace.kernels else "which is an assumption"
    yield f"{there}; at most {found.unknown} are measured, those that can change the plan"
    yield f"all of them take about {duration(found.seconds)}, {duration(found.pace.seconds)} each, {basis}"
    if found.budget_seconds is not None and found.budget_seconds < found.seconds:
        yield f"the budget ends it after {duration(found.budget_seconds)}; what matters most is measured first"
