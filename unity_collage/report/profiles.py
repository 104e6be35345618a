"""Profiles of programs as text for a terminal, and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from ..profile.result import Profile, ProfiledKernel
from .cells import counted, duration, left, right
from .in_place import disturbed

ROWS = 30
"""How many kernels are shown, the slowest ones, unless the user asks for more."""

WIDE = 110
"""From how many columns on the rates of kernels are shown."""


def profile_summary(title: str, profile: Profile, rows: int = ROWS, width: int = WIDE) -> RenderableType:
    """The slowest kernels of a profile, their sum beside the time of the program, and the overhead of the timing."""
    lines = [*_sums(profile), *_overhead(profile), *profile.remarks]
    if width < WIDE:
        lines.append(f"GFLOP/s, GB/s and the part of the machine's limit need {WIDE} columns, or --json")
    kernels, program = counted(len(profile.kernels), "kernel"), duration(profile.seconds)
    headline = f"[bold]{escape(title)}[/bold]: {kernels}, the program takes {program}"
    inside = _side_by_side(profile, rows) if profile.side_by_side else ()
    return Group(headline, "", profile_table(profile, rows, width), *inside, "", *map(escape, lines))


def profile_table(profile: Profile, rows: int = ROWS, width: int = WIDE) -> Table:
    """One row for each kernel, the slowest first; the rates only in a terminal that is wide enough."""
    rates = [right("GFLOP/s"), right("GB/s"), right("of limit")] if width >= WIDE else []
    columns = [
        Column("kernel", overflow="ellipsis", no_wrap=True, ratio=2),
        Column("layers", overflow="ellipsis", no_wrap=True, ratio=2 if rates else 1),
        left("backend"),
        right("calls"),
        right("time"),
        right("share"),
        *rates,
        right("cost"),
        right("ratio"),
    ]
    table = Table(*columns, box=None, expand=True)
    for kernel in profile.kernels[:rows]:
        table.add_row(*_row(profile, kernel, bool(rates)))
    rest = profile.kernels[rows:]
    if rest:
        time = sum(kernel.seconds for kernel in rest)
        share = sum(map(profile.share, rest))
        calls = str(sum(len(kernel.calls) for kernel in rest))
        table.add_row(f"({counted(len(rest), 'more kernel')})", "", "", calls, duration(time), f"{share:.1%}")
    return table


def _side_by_side(profile: Profile, rows: int) -> Sequence[RenderableType]:
    """The kernels of branches that run side by side."""
    texts = [Column(title, overflow="ellipsis", no_wrap=True, ratio=1) for title in ("kernel", "layers")]
    table = Table(*texts, left("backend"), right("calls"), right("time"), box=None, expand=True)
    for kernel in profile.side_by_side[:rows]:
        name, layers, backend, calls, time, *_ = _row(profile, kernel, True)
        table.add_row(name, layers, backend, calls, time)
    rest = profile.side_by_side[rows:]
    if rest:
        time = duration(sum(kernel.seconds for kernel in rest))
        table.add_row(f"({counted(len(rest), 'more kernel')})", "", "", "", time)
    return "", "the kernels of branches side by side, each on one core:", table


def profile_data(title: str, profile: Profile) -> dict[str, Any]:
    """The profile as plain data; times are in seconds, rates in operations and bytes a second."""
    return {
        "model": title,
        "seconds": profile.seconds,
        "kernel_seconds": profile.kernel_seconds,
        "run_kernel_seconds": profile.run_kernel_seconds,
        "overhead_seconds": profile.overhead,
        "reading_seconds": profile.reading_seconds,
        "readings": profile.readings,
        "runs": profile.runs,
        "threads": profile.threads,
        "remarks": list(profile.remarks),
        "kernels": [{**_kernel_data(kernel), "share": profile.share(kernel)} for kernel in profile.kernels],
        "side_by_side": [_kernel_data(kernel) for kernel in profile.side_by_side],
    }


def _row(profile: Profile, kernel: ProfiledKernel, with_rates: bool) -> Sequence[str]:
    """The cells of a kernel; without rates, where there is little room, only the last layer of each call."""
    rates = [
        _scaled(kernel.flops_per_second, 1e9),
        _scaled(kernel.bytes_per_second, 1e9),
        "" if kernel.part_of_limit is None else f"{kernel.part_of_limit:.0%}",
    ]
    last = dict.fromkeys(call.layers[-1] for call in kernel.calls if call.layers)
    return [
        escape(kernel.name),
        escape(" ".join(kernel.layers if with_rates else last) or kernel.label),
        kernel.backend,
        str(len(kernel.calls)),
        duration(kernel.seconds),
        f"{profile.share(kernel):.1%}",
        *(rates if with_rates else ()),
        "" if kernel.cost is None else duration(kernel.cost),
        "" if kernel.ratio is None else f"{kernel.ratio:.2f}x",
    ]


def _scaled(rate: float | None, unit: float) -> str:
    """A rate in a unit, to two digits or more."""
    if rate is None:
        return ""
    value = rate / unit
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _sums(profile: Profile) -> list[str]:
    """The sum of the kernels beside the whole program, and beside the plan."""
    together, whole = profile.kernel_seconds, profile.seconds
    part = f" ({together / whole:.0%} of the program's {duration(whole)})" if whole else ""
    lines = [f"all kernels: {duration(together)}{part}"]
    known = [kernel for kernel in profile.kernels if kernel.cost is not None]
    cost, measured = sum(kernel.cost or 0.0 for kernel in known), sum(kernel.seconds for kernel in known)
    if cost:
        which = "" if len(known) == len(profile.kernels) else f"{len(known)} of them: "
        lines[0] += (
            f"; {which}{duration(measured)} against a cost of {duration(cost)}, {measured / cost:.2f}x"
        )
    reason = disturbed(together, profile.run_kernel_seconds)
    return lines if reason is None else [*lines, reason]


def _overhead(profile: Profile) -> list[str]:
    """What the timing itself costs; on a disturbed machine the difference of two programs says nothing."""
    points = f"{counted(profile.readings, 'timing point')} of {duration(profile.reading_seconds)}"
    longer = f"; with them it takes {duration(max(0.0, profile.overhead))} longer"
    is_disturbed = disturbed(profile.kernel_seconds, profile.run_kernel_seconds) is not None
    return [
        f"{counted(profile.runs, 'run')} on {counted(profile.threads, 'thread')} were timed; a run passes {points}, "
        f"which are subtracted{'' if is_disturbed else longer}"
    ]


def _kernel_data(kernel: ProfiledKernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "backend": kernel.backend,
        "operators": kernel.label,
        "layers": list(kernel.layers),
        "seconds": kernel.seconds,
        "flops": None if kernel.work is None else kernel.work.flops * len(kernel.calls),
        "bytes": None if kernel.work is None else kernel.work.nbytes * len(kernel.calls),
        "flops_per_second": kernel.flops_per_second,
        "bytes_per_second": kernel.bytes_per_second,
        "part_of_limit": kernel.part_of_limit,
        "cost_seconds": kernel.cost,
        "ratio": kernel.ratio,
        "calls": [
            {
                "function": call.function,
                "layers": list(call.layers),
                "shapes": list(call.shapes),
                "seconds": call.seconds,
                "low_seconds": call.low,
                "high_seconds": call.high,
                "cost_seconds": call.cost,
            }
            for call in kernel.calls
        ],
    }
