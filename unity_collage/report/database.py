"""Databases of costs as text for a terminal: what is in one, how two differ, what was measured again."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from ..database.compare import DatabaseComparison, Difference
from ..database.costs import CostRow, Quarantined
from ..database.exchange import Merged
from ..database.prune import Doomed
from ..measure.verify import Verified
from .cells import counted, duration, left, right

ROWS = 20
"""How many rows of a long table are shown; the others are counted."""

ALIKE = 0.1
"""Two measurements of a kernel agree if they differ by at most this part."""


def database_summary(
    costs: Sequence[CostRow], entries: Sequence[Quarantined], facts: Sequence[Mapping[str, Any]]
) -> RenderableType:
    """The contents of a database: counts, costs by backend, kernels in quarantine."""
    parts: list[RenderableType] = [_counts(costs, entries, facts)]
    if costs:
        parts += ["", _backend_table(costs)]
    if entries:
        parts += ["", _quarantine_table(entries)]
    return Group(*parts)


def fingerprint_list(
    costs: Sequence[CostRow], texts: Mapping[str, str], here: frozenset[str]
) -> RenderableType:
    """One paragraph for each fingerprint: the number of its costs, and the fields in which it differs from others.

    The fields that all have in common come first. ``here``: digests of the fingerprints of this process.
    """
    counts = Counter(cost.fingerprint for cost in costs)
    lines = {name: texts.get(name, "its text is not stored").splitlines() for name in counts}
    common = [
        line for line in next(iter(lines.values()), []) if all(line in other for other in lines.values())
    ]
    parts: list[RenderableType] = []
    if len(lines) > 1 and common:
        parts += ["common to all:", *(f"  {escape(line)}" for line in common), ""]
    for name, count in counts.most_common():
        mark = ", which hold here now" if name in here else ""
        parts.append(f"[bold]{name}[/bold]: {counted(count, 'row')}{mark}")
        own = lines[name] if len(lines) == 1 else [line for line in lines[name] if line not in common]
        parts += [*(f"  {escape(line)}" for line in own)]
    return Group(*parts)


def cost_list(costs: Sequence[CostRow], of: int) -> RenderableType:
    """A row for each cost, the largest first, with the day when it was measured; ``of``: how many there are in all."""
    table = Table(_kernel(), left("backend"), right("time"), right("interval"), right("runs"), left("measured"),
                  left(""), box=None)  # fmt: skip
    for cost in sorted(costs, key=lambda cost: -(cost.seconds or 0.0)):
        interval = f"{duration(cost.low)} to {duration(cost.high)}"
        day = f"{datetime.fromtimestamp(cost.created):%Y-%m-%d}"
        table.add_row(
            escape(cost.label),
            cost.backend,
            _time(cost.seconds),
            interval,
            str(cost.runs),
            day,
            "doubtful" if cost.doubtful else "",
        )
    return Group(table, f"{len(costs)} of {counted(of, 'cost')}") if costs else f"0 of {counted(of, 'cost')}"


def merged_table(merged: Iterable[Merged]) -> Table:
    """One row for each table of the merged databases."""
    figures = [right(name) for name in ("offered", "added", "replaced", "kept as it was")]
    table = Table(left("content"), *figures, box=None)
    for part in merged:
        table.add_row(part.content, *map(str, (part.offered, part.added, part.replaced, part.kept)))
    return table


def comparison_table(comparison: DatabaseComparison, more_than: float) -> RenderableType:
    """The costs that differ, the furthest apart first."""
    apart = comparison.apart
    verb = "differs" if len(apart) == 1 else "differ"
    headline = f"{counted(len(apart), 'cost')} {verb} by more than {more_than:.0%}, {comparison.alike} do not"
    alone = f"{comparison.only_first} only in the first, {comparison.only_second} only in the second"
    if not apart:
        return Group(headline, alone)
    figures = [right(name) for name in ("first", "second", "ratio")]
    table = Table(_kernel(), left("backend"), *figures, box=None)
    for pair in apart[:ROWS]:
        table.add_row(escape(pair.first.label), pair.first.backend, *_pair(pair))
    return Group(headline, alone, "", table, *_rest(len(apart)), *_reasons(apart[:ROWS]))


def verified_table(verified: Sequence[Verified], of: int) -> RenderableType:
    """The stored and new costs of a sample, the furthest apart first, and a summary.

    ``of``: how many costs this machine could measure again.
    """
    figures = [right(name) for name in ("stored", "now", "ratio")]
    table = Table(_kernel(), left("backend"), *figures, box=None)
    for one in sorted(verified, key=lambda one: -_distance(one)):
        ratio = "-" if one.ratio is None else f"{one.ratio:.2f}x"
        cells = (_time(one.stored.seconds), _time(one.now.seconds), ratio)
        table.add_row(escape(one.stored.label), one.stored.backend, *cells)
    ratios = [one.ratio for one in verified if one.ratio is not None]
    headline = f"measured {counted(len(verified), 'kernel')} again, of {of} that this machine can"
    return Group(
        headline, "", table, "", *_verdict(ratios), *(_why_gone(one) for one in verified if one.ratio is None)
    )


def doomed_line(rows: Doomed, done: bool) -> str:
    """How many rows a prune removes."""
    verb = "removed" if done else "would remove"
    refusals = sum(row["seconds"] is None for row in rows.costs)
    parts = (counted(len(rows.costs) - refusals, "cost"), counted(refusals, "refusal"))
    return (
        f"{verb} {', '.join(parts)}, {len(rows.quarantine)} in quarantine, {counted(len(rows.facts), 'fact')}"
    )


def _counts(
    costs: Sequence[CostRow], entries: Sequence[Quarantined], facts: Sequence[Mapping[str, Any]]
) -> str:
    costed = sum(cost.seconds is not None for cost in costs)
    parts = [counted(costed, "cost"), counted(len(costs) - costed, "refusal")]
    return ", ".join([*parts, f"{len(entries)} in quarantine", counted(len(facts), "fact")])


def _backend_table(costs: Sequence[CostRow]) -> Table:
    figures = [right(name) for name in ("costs", "refusals")]
    dates = [right(name) for name in ("oldest", "newest")]
    table = Table(left("backend"), *figures, *dates, box=None)
    for backend in sorted({cost.backend for cost in costs}):
        of_it = [cost for cost in costs if cost.backend == backend]
        costed = sum(cost.seconds is not None for cost in of_it)
        created = [cost.created for cost in of_it]
        dates = (_day(min(created)), _day(max(created)))
        table.add_row(backend or "(none)", str(costed), str(len(of_it) - costed), *dates)
    return table


def _quarantine_table(entries: Sequence[Quarantined]) -> RenderableType:
    table = Table(left("in quarantine"), left("kind"), Column("why", overflow="ellipsis"), box=None)
    for entry in entries[:ROWS]:
        table.add_row(escape(f"{entry.backend} {entry.label}"), entry.kind.value, escape(entry.reason))
    return Group(table, *_rest(len(entries)))


def _pair(pair: Difference) -> tuple[str, str, str]:
    ratio = "-" if pair.ratio is None else f"{pair.ratio:.2f}x"
    return _time(pair.first.seconds), _time(pair.second.seconds), ratio


def _reasons(pairs: Sequence[Difference]) -> list[str]:
    refused = [cost for pair in pairs for cost in (pair.first, pair.second) if cost.seconds is None]
    reasons = dict.fromkeys(f"{cost.backend} {cost.label}: {cost.reason}" for cost in refused)
    return ["", *map(escape, reasons)] if reasons else []


def _verdict(ratios: Sequence[float]) -> list[str]:
    if not ratios:
        return ["none of these kernels has a cost any more"]
    near = sum(max(ratio, 1 / ratio) <= 1 + ALIKE for ratio in ratios)
    ends = f"from {min(ratios):.2f}x to {max(ratios):.2f}x"
    median = statistics.median(ratios)
    return [f"median {median:.2f}x, {ends}; {near} of {len(ratios)} within {ALIKE:.0%}"]


def _why_gone(one: Verified) -> str:
    return escape(f"{one.stored.backend} {one.stored.label} has no cost any more: {one.now.reason}")


def _distance(one: Verified) -> float:
    return float("inf") if one.ratio is None else max(one.ratio, 1 / one.ratio)


def _rest(total: int) -> list[str]:
    return [f"({total - ROWS} more)"] if total > ROWS else []


def _time(seconds: float | None) -> str:
    return "refused" if seconds is None else duration(seconds)


def _day(created: float) -> str:
    return datetime.fromtimestamp(created).strftime("%Y-%m-%d")


def _kernel() -> Column:
    return Column("kernel", overflow="ellipsis")
