"""Plan a module: its facts, their solution, and the module with the solution written into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm.ir import IRModule

from .collect import collect
from .facts import PlacingFacts
from .rewrite import written
from .solution import solved
from .table import DeviceTable, Named


def planned(
    mod: IRModule,
    targets: Sequence[Named] | Mapping[str, Named] | None = None,
    default: Named | None = None,
    host: Named | None = None,
    memories: Mapping[str, str] | None = None,
) -> IRModule:
    """``mod`` with a VDevice for each tensor; raises CollageError where annotations disagree."""
    table = DeviceTable(mod, targets, host)
    for device, memory in (memories or {}).items():
        table.set_memory(device, memory)
    first = table.first if default is None else table.whole(default)
    return written(mod, solved(collect(mod, PlacingFacts(table)), first))
