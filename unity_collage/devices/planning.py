"""Plan a module: its facts, their solution, and the module with the solution written into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import ir, relax
from tvm.ir import IRModule

from ..graph.calls import bindings_in, op_name
from ..graph.devices import used
from .collect import collect
from .copies import merged
from .facts import PlacingFacts
from .partition import is_closed
from .reading import HINT
from .rewrite import written
from .solution import solved
from .table import DeviceTable, Named
from .trees import tensors


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


def with_plan(mod: IRModule, targets: Sequence[Named] = ()) -> IRModule:
    """``mod`` as PlanDevices and MergeCopies make it if it needs a plan; new devices are of the target in scope."""
    return mod if why_planned(mod) is None else merged(planned(mod, targets or None))


def why_planned(mod: IRModule) -> str | None:
    """Why a module needs a plan before a program of several devices can be made of it, or None if it does not."""
    several = len({key[:2] for key in used(mod)}) > 1
    for gvar, func in mod.functions_items():
        if not isinstance(func, relax.Function):
            continue
        for binding in bindings_in(func.body, _is_open):
            if op_name(binding.value) == HINT:
                return f"`{binding.var.name}` in {gvar.name_hint} is a hint"
        if several and not is_closed(func) and (bare := _unplaced(func)) is not None:
            return f"`{bare.name}` in {gvar.name_hint} has no VDevice, and others have several"
    return None


def _unplaced(func: relax.Function) -> relax.Var | None:
    """The first variable with a tensor that is in no place; literals are wherever they are read."""
    bindings = bindings_in(func.body, _is_open)
    made = (b.var for b in bindings if not isinstance(b.value, (ir.GenericConst, relax.Function)))
    return next(
        (var for var in (*func.params, *made) if any(t.vdevice is None for t in tensors(var.ty))), None
    )


def _is_open(func: relax.Function) -> bool:
    return not is_closed(func)
