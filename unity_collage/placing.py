"""Where a program of a model runs: its target, checked, and the devices that its values are on."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from . import runtime
from .calling.memory import CPU, CUDA, memory_of
from .devices.planning import with_plan
from .devices.table import DeviceTable, Named
from .errors import CollageError, warn
from .frontend.models import Model, is_of_torch
from .graph.devices import first_target, key_of, listed, place_of, places_of, targets_in, with_listed_devices
from .measure.runnable import why_not_measured
from .runtime import cuda
from .runtime.libraries import claim_parallel_loops
from .target import conveyed, host_target, is_cuda, target_of


def devices_named(
    names: Sequence[Named] | None, model: Model, asked: Target | str | None
) -> tuple[relax.VDevice, ...]:
    """The VDevices among which a search chooses.

    Raises CollageError for a missing device, and for devices of several kinds.

    A name like ``cpu:1`` is a device of the machine with the target of the program. The text of a target is its
    device 0. The label or the name of a VDevice of the model is that VDevice.
    """
    if names is None:
        return ()
    scope = checked_target(asked)
    with scope:
        table = DeviceTable(model if isinstance(model, IRModule) else IRModule())
        devices = [_numbered(name, scope) or _whole(table, name) for name in names]
    keys = [key_of(device) for device in devices]
    if len(set(keys)) < 2:
        raise CollageError(
            "devices names fewer than two devices: leave it out, or name those to choose among"
        )
    kinds = dict.fromkeys(device.target.kind.name for device in devices)
    if len(kinds) > 1:
        raise CollageError(f"devices names {' and '.join(kinds)}, and no program for both is made yet")
    for device in devices:
        memory_of(place_of(device))
        if reason := why_not_measured(device.target):
            raise CollageError(f"{reason}, and devices are chosen by measured costs: leave it out of devices")
    return tuple(dict(zip(keys, devices, strict=True)).values())


def _numbered(name: Named, target: Target) -> relax.VDevice | None:
    """The device of the machine that a name like ``cpu:1`` means, for ``target``; None for other names."""
    kind, colon, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not colon or kind not in (CPU, CUDA) or not number.isdecimal():
        return None
    if (kind == CUDA) != is_cuda(target):
        raise CollageError(f"{name} is not a device of the target {target.kind.name}: name one or the other")
    return relax.VDevice(target, int(number), "global")


def _whole(table: DeviceTable, name: Named) -> relax.VDevice:
    place = table.whole(name)
    return relax.VDevice(place.target, place.device_id or 0, place.scope or "global")


def placed(
    model: Model, asked: Target | str | None, measure: bool, devices: Sequence[relax.VDevice] = ()
) -> tuple[Model, Target]:
    """``model`` with a place for each of its values, and the target of its program; ``devices`` may be chosen later.

    The target is the one that is ``asked`` for, else that of the first device of a module, else the host. A module with
    hints, or with values in no place beside others in several, becomes what PlanDevices and MergeCopies make of it.
    Other models do not change. Raises CollageError where two annotations disagree, and where no program can be made for
    the target or its devices. With ``measure`` it also raises where its kernels cannot be measured here.
    """
    if not isinstance(model, IRModule):
        return model, checked_target(asked or _first(devices), is_of_torch(model))
    with host_target() if asked is None else target_of(asked):
        mod = with_plan(model, devices)
    target = checked_target(asked or _first(devices) or first_target(mod))
    _check_devices(mod, target, measure)
    return with_listed_devices(mod), target


def _first(devices: Sequence[relax.VDevice]) -> Target | None:
    return devices[0].target if devices else None


def checked_target(target: Target | str | None, runs_beside_torch: bool = False) -> Target:
    """The target; raises CollageError where no program can be made for it."""
    scope = host_target() if target is None else target_of(target)
    if is_cuda(scope):
        if reason := cuda.why_unavailable():
            raise CollageError(f"kernels for a GPU are measured where they run: {reason}")
        return scope
    if scope.kind.name != "llvm":
        raise CollageError(
            f"the target is {scope.kind.name}, but programs are compiled for CPUs (llvm) and NVIDIA GPUs (cuda) only"
        )
    claim_parallel_loops()  # an import of TVM after the runtime was loaded has registered them
    conflict = runtime.why_pools_conflict() or (runtime.why_torch_competes() if runs_beside_torch else None)
    if conflict is not None:
        warn(conflict)
    return scope


def of_several(
    targets: Sequence[Target | str], backends: str | Sequence[str] | None, model: Model
) -> tuple[Target, tuple[str, ...] | None]:
    """The target and the backends of a list of targets.

    Raises CollageError if they contradict each other or ``backends``.
    """
    present = (
        [*targets_in(model), *(device.target for device in listed(model))]
        if isinstance(model, IRModule)
        else []
    )
    base, named = conveyed([target_of(each) for each in targets], present)
    if named is not None and backends is not None:
        raise CollageError(
            f"the targets name backends ({', '.join(named)}), and so does backends: leave one out"
        )
    return base, named if backends is None else names_of(backends)


def names_of(backends: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of backends; None for those that are available."""
    if backends is None:
        return None
    return (backends,) if isinstance(backends, str) else tuple(backends)


def _check_devices(mod: IRModule, target: Target, measure: bool) -> None:
    places = places_of(mod)
    kinds = dict.fromkeys(place.partition(":")[0] for place in places)
    if "cuda" in kinds and (reason := cuda.why_unavailable()):
        raise CollageError(f"values are on a CUDA device, and there is none here: {reason}")
    if len(kinds) > 1:
        raise CollageError(
            "values are on a CPU and on a GPU, and no program for both is made yet: compile each part alone"
        )
    if places and is_cuda(target) != ("cuda" in kinds):
        raise CollageError(
            f"values are on {places[0]}, and the target is {target.kind.name}: name one or the other"
        )
    for place in places:
        memory_of(place)
    if measure:
        for own in targets_in(mod):
            if reason := why_not_measured(own):
                raise CollageError(f"{reason}: compile with measure=False, which chooses kernels by rule")
