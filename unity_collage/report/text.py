"""Plans and backends as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from .. import runtime
from ..backends.base import Backend


def kernel_table(plan: Mapping[str, Any]) -> Table:
    """One row for each distinct kernel of a plan, dearest first: where it runs, its share, who else bid."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for kernel in plan["kernels"]:
        row = (kernel["backend"], kernel["label"], _others(kernel))
        rows.setdefault(row, []).append(float(kernel["seconds"]))
    total = sum(sum(seconds) for seconds in rows.values()) or 1.0
    table = Table("backend", "kernel", "count", "time", "share", "others for the same operators", box=None)
    for (backend, label, others), seconds in sorted(rows.items(), key=lambda row: -sum(row[1])):
        share = f"{sum(seconds) / total:.1%}"
        table.add_row(backend, label, str(len(seconds)), duration(sum(seconds)), share, others)
    return table


def backend_table(backends: Iterable[Backend]) -> Table:
    """One row for each backend: its version, or why it cannot be used."""
    table = Table("backend", "version", "state", box=None)
    for backend in backends:
        reason = backend.why_unavailable()
        version = backend.fingerprint() if reason is None else "-"
        table.add_row(backend.name, version, "available" if reason is None else reason)
    conflict = runtime.why_pools_conflict()
    if conflict is not None:
        table.caption = conflict
    return table


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e6:.1f} us"


def _others(kernel: Mapping[str, Any]) -> str:
    """The bids of other backends for the same operators: dearer by so much, or without a price."""
    bids = []
    for bid in kernel["others"]:
        if "seconds" in bid:
            bids.append(
                f"{bid['backend']} {float(bid['seconds']) / max(float(kernel['seconds']), 1e-12):.1f}x"
            )
        else:
            bids.append(f"{bid['backend']}: {bid['reason']}")
    return ", ".join(bids)
