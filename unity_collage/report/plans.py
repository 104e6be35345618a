"""Plans as text for a terminal, 80 columns wide or more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from ..plan.costs import OUT_OF_TIME, STOPPED
from ..plan.plan import Plan, PlannedKernel, Tie
from ..plan.ranges import named as sizes_text
from .cells import additive_text, counted, duration, left, plus_minus, right
from .words import memory_text, percent, unproved_text

ROWS = 15
"""How many kinds of kernels are shown, the most expensive ones; the plan itself has all."""

_NOTABLE_DOUBT = 0.01
"""From which part of the plan's cost on the doubt about it is worth a line."""

_FAR = 10.0
"""A larger ratio is shown as ``>10x``: a stray cost must not look like a precise one."""

Kernels = Sequence[PlannedKernel]


def plan_summary(name: str, plan: Plan) -> RenderableType:
    """A summary of the plan of function ``name``: a line, the share of each backend, the most expensive kernels."""
    kernels, title = plan.kernels, f"[bold]{name}[/bold]{escape(for_sizes(plan))}"
    if plan.variants:
        line = f"{title}: by the sizes of its inputs it runs one of {len(plan.variants)} plans"
        return Group(line, *_range(plan), *_remarks(plan))
    if plan.range is not None:
        return Group(f"{title}: it runs one plan for all sizes", *_range(plan), *_remarks(plan))
    if not kernels:
        return Group(f"{title}: nothing has a cost, TVM compiles it as it is", *_remarks(plan))
    headline = plan_headline(name, plan)
    error = () if plan.additive_error is None else (additive_text(plan.additive_error, plan.seconds),)
    at_samples = _at_samples(plan)
    return Group(
        headline, *error, *at_samples, "", backend_shares(plan), "", kernel_table(plan), *_remarks(plan)
    )


def _at_samples(plan: Plan) -> list[RenderableType]:
    """What a plan for all sizes costs at each sample: ``weighed over 2 sizes: batch 1 0.52 ms; batch 8 3.10 ms``."""
    if not plan.at_samples:
        return []
    each = "; ".join(f"{sizes_text(at.sizes)} {duration(at.seconds)}" for at in plan.at_samples)
    return [escape(f"weighed over {counted(len(plan.at_samples), 'size')}: {each}")]


def _range(plan: Plan) -> list[RenderableType]:
    """One row for each sample: what runs there, its cost, that of the best static plan, and the difference."""
    if plan.range is None:
        return []
    figures = [right(name) for name in ("weight", "cost", "best static", "regret")]
    table = Table(left("sizes"), left("runs"), *figures, box=None)
    for each in plan.range.sizes:
        best = f"{duration(each.best_seconds)}{'' if each.proved else ' *'}"
        sign = "-" if each.regret < 0 else ""
        table.add_row(
            escape(sizes_text(each.sizes)),
            each.runs,
            f"{each.weight:.0%}",
            duration(each.seconds),
            best,
            f"{sign}{duration(abs(each.regret))}",
        )
    note = "* not proved: a static plan there may cost less"
    return ["", table, *([note] if any(not each.proved for each in plan.range.sizes) else [])]


def plan_headline(name: str, plan: Plan) -> str:
    """``main: 26 kernels, predicted 5.02 ms, measured 5.11 ms``."""
    return f"[bold]{name}[/bold]{escape(for_sizes(plan))}: {counted(len(plan.kernels), 'kernel')}, {_seconds_of(plan)}"


def for_sizes(plan: Plan) -> str:
    """`` (batch 8)`` for the plan of a variant."""
    return f" ({sizes_text(plan.sizes)})" if plan.sizes else ""


def _seconds_of(plan: Plan) -> str:
    """``predicted 5.02 ms, measured 5.11 ms``; of another percentile than the median ``predicted p90 5.02 ms``."""
    which = "" if plan.percentile == 50.0 else f"p{plan.percentile:g} "
    predicted = f"predicted {which}{duration(plan.seconds)}" if plan.has_costs else "nothing measured"
    if plan.measured_seconds is None:
        return predicted
    return f"{predicted}, measured {which}{duration(plan.measured_seconds)}{day_of(plan)}"


def day_of(plan: Plan) -> str:
    """``on 2026-03-01``: the day on which the whole program was measured; empty if it was measured in this compile."""
    known, times = plan.comparison, plan.in_place
    if times is not None and times.program is not None and plan.measured_seconds == times.program:
        return on_day(times.since)
    return on_day(known.created if known is not None and known.origin == "database" else None)


def on_day(since: float | None) -> str:
    """The day of a time in seconds since the epoch; empty for None, which is now."""
    return "" if since is None else f" on {datetime.fromtimestamp(since):%Y-%m-%d}"


def backend_shares(plan: Plan) -> Table:
    """One row for each backend: the number of its kernels, and their part of the plan's cost."""
    table = Table(left("backend"), right("kernels"), right("time"), right("share"), box=None)
    for (backend,), group in _grouped(plan.kernels, "backend").items():
        seconds = _seconds(group)
        table.add_row(escape(backend), str(len(group)), time_text(seconds), share_text(seconds, plan))
    return table


def kernel_table(plan: Plan, rows: int = ROWS) -> Table:
    """One row for each kind of kernel, the most expensive first: its backend, and the cost of the next best one."""
    # Only this column gets narrower with the terminal: a label has no spaces to break at.
    label, figures = (
        Column("kernel", overflow="ellipsis"),
        [right(name) for name in ("count", "time", "share")],
    )
    table = Table(label, left("backend"), *figures, left("next best"), box=None)
    groups = list(_grouped(plan.kernels, "label", "backend").items())
    for (label_text, backend), group in groups[:rows]:
        seconds = _seconds(group)
        cells = (
            escape(label_text),
            escape(backend),
            str(len(group)),
            time_text(seconds),
            share_text(seconds, plan),
        )
        table.add_row(*cells, _next_best(group))
    rest = [kernel for _, group in groups[rows:] for kernel in group]
    if rest:
        table.add_row(f"({counted(len(groups) - rows, 'kind')} more)", "", str(len(rest)), time_text(_seconds(rest)),
                      share_text(_seconds(rest), plan))  # fmt: skip
    return table


def _remarks(plan: Plan) -> list[RenderableType]:
    """Remarks: peak memory, ties, branches side by side, a missing proof, candidates without a cost."""
    lines = [] if plan.memory is None else [memory_text(plan.memory)]
    lines += _ties(plan)
    has_figures = plan.has_costs or not (plan.kernels or plan.algorithm or plan.variants or plan.range)
    if not has_figures:  # otherwise these remarks matter
        lines += plan.remarks
    if branches := plan.branches:
        now, before = duration(branches.seconds), duration(branches.split_seconds)
        stages = counted(branches.stages, "stage")
        lines.append(
            f"{branches.kernels} kernels side by side in {stages}: {now} in place of {before}, measured"
        )
    late = [each for each in plan.without_cost if each.reason.startswith((OUT_OF_TIME, STOPPED))]
    if late and plan.gap > 1e-9:
        lines.append(
            f"the plan may be up to {percent(plan.gap)} off: there was no time left to measure "
            f"{counted(len(late), 'candidate')}; --budget TIME continues the measuring"
        )
    elif plan.certificate is not None and not plan.proved:  # only plans of a search have a certificate
        lines.append(unproved_text(plan.gap, plan.certificate.unproved))
    if plan.expected:
        lines.append(
            f"the costs of {counted(plan.expected, 'kernel')} are expected from those of others, since there was no "
            "time left to measure them; --budget TIME continues the measuring"
        )
    if plan.doubt >= _NOTABLE_DOUBT:
        lines.append(
            f"measured on a busy machine: the plan may be up to {plan.doubt:.0%} off; run again to improve it, or with "
            "--remeasure"
        )
    refused = [each for each in plan.without_cost if each not in late]
    if refused:
        first = refused[0]
        example = f"{first.backend} {first.label}: {first.reason}"
        lines.append(f"{counted(len(refused), 'candidate')} without a cost, such as {example}")
    return ["", *map(escape, lines)] if lines else []


def _ties(plan: Plan, most: int = 3) -> list[str]:
    """The most expensive kernels that tie with others, and the cost of the policy for ties."""
    tied = [kernel for kernel in plan.kernels if kernel.ties]
    if not tied:
        return []
    texts = (_tie(kernel) for kernel in sorted(tied, key=lambda kernel: -kernel.seconds))
    policy = plan.tie_policy
    more = plan.more_than_cheapest / plan.seconds if policy else 0.0
    over = f"; by the policy for ties the plan costs {more:.2%} more than the cheapest one" if policy else ""
    return [*list(dict.fromkeys(texts))[:most], f"{counted(len(tied), 'kernel')} in ties{over}"]


def _tie(kernel: PlannedKernel) -> str:
    """``onednn conv2d: tie with tvm cone, 41.2 us +- 0.9 us against 41.0 us +- 1.1 us``."""
    parts = kernel.ties[0]
    names = " and ".join(f"{part.backend} {part.label}" for part in parts)
    costs = " and ".join(map(_noisy, parts))
    return f"{kernel.backend} {kernel.label}: tie with {names}, {_noisy(kernel)} against {costs}"


def _noisy(cost: PlannedKernel | Tie) -> str:
    return plus_minus(cost.seconds, *(cost.interval or (cost.seconds, cost.seconds)))


def _next_best(kernels: Kernels) -> str:
    """The backend that the kernels tie with, else the cheapest rival for the same operators and the ratio of costs."""
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
    return f"{name} >{_FAR:.0f}x" if ratio > _FAR else f"{name} {ratio:.2f}x"


def _grouped(kernels: Kernels, *keys: str) -> dict[tuple[str, ...], list[PlannedKernel]]:
    """Kernels with equal values of these fields, the most expensive group first."""
    groups: dict[tuple[str, ...], list[PlannedKernel]] = {}
    for kernel in kernels:
        groups.setdefault(tuple(str(getattr(kernel, key)) for key in keys), []).append(kernel)
    return dict(sorted(groups.items(), key=lambda item: -_seconds(item[1])))


def _seconds(kernels: Kernels) -> float:
    return sum(kernel.seconds for kernel in kernels)


def time_text(seconds: float) -> str:
    """A time; empty for kernels that were not measured."""
    return duration(seconds) if seconds else ""


def share_text(seconds: float, plan: Plan) -> str:
    """The part of ``seconds`` in the plan's cost, launches and transitions included, as the page has it."""
    return f"{seconds / plan.seconds:.1%}" if seconds and plan.seconds else ""
