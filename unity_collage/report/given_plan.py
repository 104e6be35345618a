"""A given plan beside ours as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from ..inspection.given_plan import CostedKernel, KernelDifference, PlanCosts
from .cells import counted, duration, left, plus_minus, right, signed

ROWS = 20
"""How many differences are shown, the largest ones; the data has all."""


def plan_costs_summary(name: str, found: PlanCosts) -> RenderableType:
    """A line with both costs, and a row for each kernel of the parts in which the plans differ."""
    headline = (
        f"[bold]{escape(name)}[/bold]: the given plan costs {duration(found.given)}, ours {duration(found.ours)}: "
        f"{escape(_loss(found))}"
    )
    equal = len(found.given_kernels) - sum(len(each.given) for each in found.differences)
    parts: list[RenderableType] = [headline, f"{counted(equal, 'kernel')} in both"]
    if found.differences:
        parts += ["", _table(found.differences[:ROWS])]
    if rest := found.differences[ROWS:]:
        seconds = sum(each.seconds for each in rest)
        parts.append(f"({counted(len(rest), 'difference')} more, {signed(seconds)} together)")
    if not found.together:
        parts += [
            "",
            "not all kernels were timed in turns: between sessions costs may differ by some percent",
        ]
    return Group(*parts)


def _loss(found: PlanCosts) -> str:
    if not found.differences:
        return "they are the same"
    share = f" ({found.loss / found.ours:+.1%})" if found.ours else ""
    tie = ", a tie as far as the measurements tell" if found.is_tie else ""
    return f"{signed(found.loss)}{share}{tie}"


def _table(differences: Sequence[KernelDifference]) -> Table:
    table = Table(
        left("plan"), left("backend"), Column("kernel", overflow="ellipsis", no_wrap=True), right("cost"),
        right("loss"), box=None,
    )  # fmt: skip
    for each in differences:
        rows = [*_rows("given", each.given), *_rows("ours", each.ours)]
        for number, row in enumerate(rows):
            table.add_row(*row, "" if number else signed(each.seconds))
    return table


def _rows(plan: str, kernels: Sequence[CostedKernel]) -> Iterator[tuple[str, ...]]:
    for kernel in kernels:
        where = f"{kernel.label} ({kernel.bindings[-1]})"
        cost = plus_minus(kernel.seconds, kernel.low, kernel.high)
        yield plan, escape(kernel.backend), escape(where), cost
    if not kernels:
        yield plan, "", "no kernel", ""
