"""The most expensive kernels with their runners-up, for a terminal of 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from ..plan.candidate import VIEW
from ..plan.explanation import ExplainedKernel, Explanation
from .cells import duration
from .plans import ROWS
from .words import percent, proof_text, sentence


def explanation_summary(name: str, explanation: Explanation, rows: int = ROWS) -> RenderableType:
    """The cost of function ``name``, its proof, and the most expensive kinds of kernels."""
    if not explanation.kernels:
        return Group(f"[bold]{name}[/bold]: nothing has a cost, TVM compiles it as it is")
    views = sum(explanation.by_id[kernel.candidate].backend == VIEW for kernel in explanation.kernels)
    kernels = f"{len(explanation.kernels) - views} kernels" + (f" and {views} views" if views else "")
    return Group(
        f"[bold]{name}[/bold]: {kernels} out of {len(explanation.candidates)} candidates",
        escape(sentence(proof_text(explanation))),
        "",
        kinds_table(explanation, rows),
    )


def kinds_table(explanation: Explanation, rows: int = ROWS) -> Table:
    """One row for each kind of equal kernels, the most expensive first, with the kernel that is nearest to losing.

    Column ``costs more``: how much more the best plan without it costs, also as a part of the kernel's own cost.
    """
    kinds = _kinds(explanation)
    table = Table(
        Column("kernel", overflow="ellipsis", no_wrap=True, ratio=3),
        Column("such as", overflow="ellipsis", no_wrap=True, ratio=2),
        Column("backend", no_wrap=True),
        Column("count", no_wrap=True, justify="right"),
        Column("time", no_wrap=True, justify="right"),
        Column("runner-up", overflow="ellipsis", no_wrap=True, ratio=3),
        Column("costs more", no_wrap=True, justify="right"),
        box=None,
        expand=True,
    )
    for kind in kinds[:rows]:
        table.add_row(*_row(explanation, kind))
    rest = [kernel for kind in kinds[rows:] for kernel in kind]
    if rest:
        hidden = len(kinds) - rows
        more = f"({hidden} more {'kind' if hidden == 1 else 'kinds'})"
        table.add_row(more, "", "", str(len(rest)), duration(_seconds(explanation, rest)), "", "")
    return table


def _kinds(explanation: Explanation) -> list[list[ExplainedKernel]]:
    """Groups of kernels that share a cost, the most expensive group first."""
    kinds: dict[int, list[ExplainedKernel]] = {}
    for kernel in explanation.kernels:
        kinds.setdefault(explanation.by_id[kernel.candidate].cost, []).append(kernel)
    return sorted(kinds.values(), key=lambda kind: -_seconds(explanation, kind))


def _row(explanation: Explanation, kind: list[ExplainedKernel]) -> Iterable[str]:
    nearest = min(kind, key=_margin)
    own = explanation.by_id[nearest.candidate]
    yield escape(own.label)
    yield explanation.bindings[own.bindings[-1]].name
    yield own.backend
    yield str(len(kind))
    yield duration(_seconds(explanation, kind))
    if nearest.runner_up is None:
        yield from ("none", "")
        return
    rival = explanation.by_id[nearest.runner_up]
    yield rival.backend if rival.label == own.label else escape(f"{rival.backend} {rival.label}")
    yield _more(nearest, explanation.seconds(nearest))


def _more(kernel: ExplainedKernel, seconds: float) -> str:
    """The margin, also as a part of the kernel's own cost."""
    if kernel.ties:
        return "tie"
    if not kernel.margin:
        return "equal" if kernel.exact else "unknown"
    least = "" if kernel.exact else ">"
    part = f" {percent(kernel.margin / seconds):>6}" if seconds else ""
    return f"{least}{duration(kernel.margin)}{part}"


def _margin(kernel: ExplainedKernel) -> float:
    return float("inf") if kernel.margin is None else kernel.margin


def _seconds(explanation: Explanation, kernels: list[ExplainedKernel]) -> float:
    return sum(explanation.seconds(kernel) for kernel in kernels)
