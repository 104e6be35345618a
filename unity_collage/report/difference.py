"""Two plans side by side as text for a terminal, and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table

from ..inspection.plan_diff import ProgramDifference
from ..plan.difference import Change, PartDifference, PlanDifference
from ..plan.plan import Plan, PlannedKernel
from .cells import counted, duration, left, right, signed

ROWS = 20
"""How many parts are shown, those with the largest differences; the data has all."""


APART = "no kernel of the two computes the same value: they are plans of two models, or their values have other names"

WIDE = 100
"""From how many columns on the costs of both kernels are shown beside their difference."""


def difference_summary(found: ProgramDifference, rows: int = ROWS, width: int = WIDE) -> RenderableType:
    """Both programs function by function: their costs, what has changed, the backends, the largest differences."""
    parts: list[RenderableType] = [f"first: {escape(found.first)}", f"second: {escape(found.second)}"]
    for name, each in found.functions.items():
        parts += ["", _of_function(name, each, rows, width)]
    for which, names in (("first", found.only_first), ("second", found.only_second)):
        if names:
            parts += [
                "",
                f"only the {which} has {counted(len(names), 'plan')} more: {escape(', '.join(names))}",
            ]
    return Group(*parts)


def _of_function(name: str, found: PlanDifference, rows: int, width: int) -> RenderableType:
    parts: list[RenderableType] = [f"[bold]{escape(name)}[/bold]: {headline(found)}"]
    if measured := measured_text(found):
        parts.append(measured)
    if not found.parts or found.first.variants or found.second.variants:
        return Group(*parts)
    if found.is_apart:
        parts.append(APART)
    parts += ["", _change_table(found), "", _backend_table(found)]
    shown = [*found.changed, *found.other_costs]
    shown.sort(key=lambda part: -abs(part.seconds))
    if shown:
        parts += ["", _part_table(found, shown[:rows], width)]
    if rest := shown[rows:]:
        together = f", {signed(sum(part.seconds for part in rest))} together" if found.has_costs else ""
        parts.append(f"({counted(len(rest), 'difference')} more{together})")
    return Group(*parts)


def headline(found: PlanDifference) -> str:
    """``26 kernels, 1.40 ms; then 24 kernels, 980 us: -420 us (-30.0%)``; both are costs."""
    first, second = found.first, found.second
    if first.variants or second.variants:
        return f"{_size(first)}; then {_size(second)}"
    if not found.has_costs:
        return f"{_size(first)}; then {_size(second)}: times are not compared, since a plan without costs has none"
    ratio = f" ({found.seconds / first.seconds:+.1%})" if first.seconds else ""
    return (
        f"{_size(first)}, {duration(first.seconds)}; then {_size(second)}, {duration(second.seconds)}: "
        f"{signed(found.seconds)}{ratio}"
    )


def _size(plan: Plan) -> str:
    if plan.variants:
        return f"one of {len(plan.variants)} plans, by the sizes of its inputs"
    return counted(len(plan.kernels), "kernel")


def measured_text(found: PlanDifference) -> str:
    """``the whole programs, measured: 4.80 ms, then 3.67 ms: -1.13 ms (-23.6%)``; empty where one was not measured."""
    first, second = found.first.measured_seconds, found.second.measured_seconds
    if first is None or second is None:
        return ""
    ratio = f" ({second / first - 1.0:+.1%})" if first else ""
    return f"the whole programs, measured: {duration(first)}, then {duration(second)}: {signed(second - first)}{ratio}"


def _change_table(found: PlanDifference) -> Table:
    figures = [right(name) for name in ("parts", "first", "second", "difference", "share")]
    table = Table(left("what changed"), *figures, box=None)
    for change, parts in found.by_change.items():
        sums = [sum(part.first_seconds for part in parts), sum(part.second_seconds for part in parts)]
        table.add_row(change.value, str(len(parts)), *_costs(found, *sums), *_share(found, sums[1] - sums[0]))
    between = found.between_seconds
    if found.has_costs:
        kernels = [
            sum(part.first_seconds for part in found.parts),
            sum(part.second_seconds for part in found.parts),
        ]
        rest = (found.first.seconds - kernels[0], found.second.seconds - kernels[1])
        table.add_row("launches, transitions", "", *_costs(found, *rest), *_share(found, between))
        whole = (found.first.seconds, found.second.seconds)
        table.add_row("together", "", *_costs(found, *whole), *_share(found, found.seconds))
    return table


def _backend_table(found: PlanDifference) -> Table:
    figures = [right(name) for name in ("kernels", "first", "kernels", "second", "difference")]
    table = Table(left("backend"), *figures, box=None)
    for each in found.by_backend:
        first, second = _costs(found, *(sum(k.seconds for k in part) for part in (each.first, each.second)))
        difference = signed(each.seconds) if found.has_costs else ""
        table.add_row(
            escape(each.backend), str(len(each.first)), first, str(len(each.second)), second, difference
        )
    return table


def _part_table(found: PlanDifference, parts: Sequence[PartDifference], width: int) -> Table:
    texts = [
        Column(name, overflow="ellipsis", no_wrap=True, ratio=2 if name != "layer" else 1)
        for name in ("layer", "first", "second")
    ]
    both = [right("first cost"), right("second cost")] if width >= WIDE else []
    table = Table(*texts, *both, right("difference"), right("share"), box=None, expand=True)
    for part in parts:
        costs = _costs(found, part.first_seconds, part.second_seconds) if both else ()
        noise = " ~" if part.within_noise and part.seconds else ""
        difference, share = _share(found, part.seconds)
        second = "the same" if part.change is Change.NONE else kernels_text(part.second)
        cells = (part.layer, kernels_text(part.first), second)
        table.add_row(*map(escape, cells), *costs, f"{difference}{noise}", share)
    if any(part.within_noise and part.seconds for part in parts):
        table.caption = "~ within the noise of the measurements"
        table.caption_justify = "left"
    return table


def kernels_text(kernels: Sequence[PlannedKernel]) -> str:
    """``onednn conv2d+relu``, ``onednn conv2d, tvm relu``, ``4 kernels: onednn conv2d, ...``."""
    if not kernels:
        return "none"
    names = ", ".join(f"{kernel.backend} {kernel.label}" for kernel in kernels)
    return names if len(kernels) < 3 else f"{len(kernels)} kernels: {names}"


def _costs(found: PlanDifference, first: float, second: float) -> tuple[str, str]:
    """Both sums; empty where a plan has no costs."""
    return (
        duration(first) if found.first.has_costs and first else "",
        duration(second) if found.second.has_costs and second else "",
    )


def _share(found: PlanDifference, seconds: float) -> tuple[str, str]:
    """The difference, and its part of the whole one; empty where it is not known."""
    if not found.has_costs:
        return "", ""
    share = found.share(seconds)
    return signed(seconds), "" if share is None else f"{share:.1%}"


def difference_data(found: ProgramDifference) -> dict[str, Any]:
    """All of it as plain data; times are in seconds. The page and ``--json`` have the same."""
    return {
        "first": found.first,
        "second": found.second,
        "only_first": list(found.only_first),
        "only_second": list(found.only_second),
        "functions": {name: _function_data(each) for name, each in found.functions.items()},
    }


def _function_data(found: PlanDifference) -> dict[str, Any]:
    has_costs = found.has_costs
    numbers = [
        {id(kernel): n for n, kernel in enumerate(plan.kernels)} for plan in (found.first, found.second)
    ]
    return {
        "says": headline(found),
        "measured_says": measured_text(found),
        "remark": APART if found.is_apart else "",
        "seconds": found.seconds if has_costs else None,
        "measured_seconds": found.measured_seconds,
        "between_seconds": found.between_seconds if has_costs else None,
        "first": _plan_data(found.first),
        "second": _plan_data(found.second),
        "by_change": [
            {"change": change.value, "parts": len(parts), **_sums(found, parts)}
            for change, parts in found.by_change.items()
        ],
        "by_backend": [
            {
                "backend": each.backend,
                "first_kernels": len(each.first),
                "second_kernels": len(each.second),
                "first_seconds": sum(kernel.seconds for kernel in each.first),
                "second_seconds": sum(kernel.seconds for kernel in each.second),
                "seconds": each.seconds if has_costs else None,
            }
            for each in found.by_backend
        ],
        "parts": [
            {
                "change": part.change.value,
                "layer": part.layer,
                "layers": list(part.layers),
                "first": [_kernel_data(kernel, numbers[0][id(kernel)]) for kernel in part.first],
                "second": [_kernel_data(kernel, numbers[1][id(kernel)]) for kernel in part.second],
                **_sums(found, [part]),
                "within_noise": part.within_noise,
            }
            for part in found.parts
        ],
    }


def _sums(found: PlanDifference, parts: Sequence[PartDifference]) -> dict[str, float | None]:
    seconds = sum(part.seconds for part in parts)
    return {
        "first_seconds": sum(part.first_seconds for part in parts),
        "second_seconds": sum(part.second_seconds for part in parts),
        "seconds": seconds if found.has_costs else None,
        "share": found.share(seconds) if found.has_costs else None,
    }


def _plan_data(plan: Plan) -> dict[str, Any]:
    return {
        "seconds": plan.seconds if plan.has_costs else None,
        "measured_seconds": plan.measured_seconds,
        "kernels": len(plan.kernels),
        "sizes": dict(plan.sizes),
    }


def _kernel_data(kernel: PlannedKernel, number: int) -> dict[str, Any]:
    """A kernel; ``number``: when it runs, among those of its plan."""
    low, high = kernel.interval or (kernel.seconds, kernel.seconds)
    return {
        "number": number,
        "backend": kernel.backend,
        "label": kernel.label,
        "function": kernel.function,
        "bindings": list(kernel.bindings),
        "seconds": kernel.seconds,
        "low": low,
        "high": high,
        "threads": kernel.threads,
        "device": kernel.device,
    }
