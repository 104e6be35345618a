"""The VDevices of a module: the list that types refer to, found by label, by name, or by the known parts of a place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import ir, relax
from tvm.ir import IRModule
from tvm.target import Target

from ..annotations import DEVICES
from ..errors import CollageError, with_names
from ..plan.placed import ID, KIND, SCOPE, TARGET, NamedDevice
from ..target import current_target, fields_of, host_target, target_of, why_not_refined

Named = relax.VDevice | Target | str
"""A device for an option: a VDevice, a target, the text of one, or the name or label of a device of the module."""

GLOBAL = "global"
"""The memory scope that TVM assumes if none is specified."""

_CPU = 1

_HOST_MEMORY = "host"
"""The name of the memory that all CPUs of a machine have, unless other names are given."""

_TOOLS = ("libs", "compiler", "fusion_spec")


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """The place of a value. Each part may be free: None."""

    kind: int | None = None
    """The ``DLDeviceType``."""
    target: Target | None = None
    device_id: int | None = None
    scope: str | None = None

    def parts(self) -> dict[str, object]:
        """The parts that are not free."""
        every = {KIND: self.kind, TARGET: self.target, ID: self.device_id, SCOPE: self.scope}
        return {part: value for part, value in every.items() if value is not None}


def kind_of(target: Target) -> int:
    """The ``DLDeviceType`` of the devices of ``target``."""
    return int(target.get_target_device_type())


def joined(part: str, first: object, second: object) -> object | None:
    """The join of two values of one part, or None where they disagree; of two targets, the one that refines."""
    if part != TARGET:
        return first if first == second else None
    assert isinstance(first, Target) and isinstance(second, Target)
    if str(first) == str(second):
        return first
    if why_not_refined(first, second) is not None:
        return None
    if not _tools(first) or not _tools(second):
        return second if _tools(second) else first
    return first if _tools(first) == _tools(second) else None


def _tools(target: Target) -> dict[str, object]:
    """The tools that a target names; the least specialised target names none."""
    fields = fields_of(target)
    return {name: fields[name] for name in _TOOLS if fields.get(name)}


class DeviceTable:
    """The list ``global_infos["vdevice"]`` of a module, which grows by the devices that a plan needs."""

    def __init__(
        self,
        mod: IRModule,
        targets: Sequence[Named] | Mapping[str, Named] | None = None,
        host: Named | None = None,
    ) -> None:
        self.devices: list[relax.VDevice] = list(vdevices_of(mod))
        facts = DEVICES.read(mod) if DEVICES.on(mod) else ()
        self.facts: list[NamedDevice] = [
            facts[i] if i < len(facts) else NamedDevice() for i in range(len(self.devices))
        ]
        self._options: list[DevicePlace] = []
        named: Mapping[str, Named] = targets if isinstance(targets, Mapping) else {}
        plain = () if targets is None or isinstance(targets, Mapping) else tuple(targets)
        given = [self._given(target, name) for name, target in named.items()]
        given += [self._given(target, "") for target in plain]
        self._options = given or [self._option(i) for i in range(len(self.devices))]
        if not self._options:
            self._options = [_whole(current_target())]
        self._options.sort(key=lambda place: len(_tools(_target(place))))
        self.host = self._host() if host is None else self.whole(host)
        """Where shapes and conditions are."""

    @property
    def first(self) -> DevicePlace:
        """The default of the defaults: the first target, of equal devices the least specialised one."""
        return self._options[0]

    def _host(self) -> DevicePlace:
        """The first CPU among the devices, else the host of the first target, else this machine."""
        cpu = next((place for place in self._options if place.kind == _CPU), None)
        if cpu is not None:
            return cpu
        target = _target(self.first).host
        return _whole(target if target is not None else host_target())

    def named(self, device: Named) -> DevicePlace:
        """The place that an option names; raises CollageError with the known names."""
        if isinstance(device, relax.VDevice):
            return self.said_by(device)
        if isinstance(device, Target):
            return _whole(self.least_specialised(device))
        known = {facts.name: i for i, facts in reversed(list(enumerate(self.facts))) if facts.name}
        known |= {self.label(i): i for i in range(len(self.devices))}
        if device in known:
            return self.said_by(self.devices[known[device]])
        kind = device.split(" ")[0]
        if ":" in kind and not kind.startswith("{"):
            said = with_names(f"the module has no device {device!r}", device, sorted(known))
            raise CollageError(
                said if known else f"{said}: there are cpu:0, cpu:1 and so on, and cuda:0 with an NVIDIA GPU"
            )
        return _whole(self.least_specialised(target_of(device)))

    def whole(self, device: Named) -> DevicePlace:
        """The place that an option names, with its free parts chosen."""
        place = self.named(device)
        target = place.target or self._of_kind(place.kind, self.first) or self.first.target
        return replace(place, target=target, device_id=place.device_id or 0, scope=place.scope or GLOBAL)

    def said_by(self, device: relax.VDevice) -> DevicePlace:
        """The specified parts of a VDevice: those that its facts do not list as free."""
        index = self.index(device)
        free = self.facts[index].free if index is not None else ()
        place = DevicePlace(
            kind_of(device.target), device.target, int(device.vdevice_id), str(device.memory_scope)
        )
        parts = {KIND: "kind", TARGET: "target", ID: "device_id", SCOPE: "scope"}
        return replace(place, **{parts[part]: None for part in free})

    def least_specialised(self, target: Target) -> Target:
        """The target among the devices that ``target`` refines, with the fewest tools; ``target`` if there is none."""
        options = (_target(place) for place in self._options)
        return next((each for each in options if why_not_refined(target, each) is None), target)

    def hinted(self, kind: int, number: int) -> Target | None:
        """The target of the device that a kind and an id mean; None if there is none, or two that differ."""
        fits = {str(o.target): o.target for o in self._options if (o.kind, o.device_id) == (kind, number)}
        return next(iter(fits.values())) if len(fits) == 1 else None

    def completed(self, place: DevicePlace, default: DevicePlace) -> DevicePlace | None:
        """``place`` with its free parts except the scope chosen, by the default or the first device that fits, or
        None.
        """
        for option in (default, *self._options):
            fits = place.target is None or str(place.target) == str(option.target)
            if fits and place.kind in (None, option.kind) and place.device_id in (None, option.device_id):
                return replace(option, scope=place.scope)
        target = place.target or self._of_kind(place.kind, default)
        if target is None:
            return None
        return DevicePlace(kind_of(target), target, place.device_id or 0, place.scope)

    def _of_kind(self, kind: int | None, default: DevicePlace) -> Target | None:
        return next((o.target for o in (default, *self._options) if kind in (None, o.kind)), None)

    def vdevice(self, place: DevicePlace) -> relax.VDevice:
        """The entry of the list for a place without free parts; it is appended if there is none."""
        target = _target(place)
        scope, number = place.scope or GLOBAL, place.device_id or 0
        made = relax.VDevice(target, number, scope)
        index = self.index(made)
        if index is not None:
            return self.devices[index]
        self.devices.append(made)
        self.facts.append(NamedDevice(self._name(target, number)))
        return self.devices[-1]

    def index(self, device: relax.VDevice) -> int | None:
        """The position of a VDevice in the list; None if no entry is equal."""
        return next((i for i, each in enumerate(self.devices) if _equal(each, device)), None)

    def label(self, index: int) -> str:
        """How scripts refer to an entry: ``llvm:1`` is the second one of kind ``llvm``."""
        return label_of(self.devices, index)

    def label_of_device(self, device: relax.VDevice) -> str:
        """The label of a VDevice of the module."""
        index = self.index(device)
        assert index is not None, "the module's list has every VDevice of its types"
        return self.label(index)

    def label_of_named(self, device: Named) -> str:
        """The label of the VDevice that an option names, also as ``cpu:1``; raises CollageError if there is none."""
        kind, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
        if kind == "cpu" and number.isdecimal():
            fitting = [
                index
                for index, each in enumerate(self.devices)
                if kind_of(each.target) == _CPU and int(each.vdevice_id) == int(number)
            ]
            if len(fitting) != 1:
                raise CollageError(
                    f"the module has {len(fitting)} VDevices for {device}: name one by its label, such as llvm:1"
                )
            return self.label(fitting[0])
        place = self.whole(device)
        index = self.index(relax.VDevice(place.target, place.device_id or 0, place.scope or GLOBAL))
        if index is None:
            raise CollageError(f"the module has no device {device}: name it in PlanDevices(targets=)")
        return self.label(index)

    def identifier(self, device: relax.VDevice) -> str:
        """A word for a VDevice in names of functions: its name, or its label."""
        index = self.index(device)
        name = self.facts[index].name if index is not None else ""
        return re.sub(r"\W+", "_", name or self.label_of_device(device))

    def shown(self, device: relax.VDevice) -> str:
        """The name of a VDevice in messages, or its label, with the full target if the label is ambiguous."""
        index = self.index(device)
        if index is None:
            return f"{target_text(device.target)} device {int(device.vdevice_id)}"
        scope = "" if str(device.memory_scope) == GLOBAL else f" {device.memory_scope}"
        return (self.facts[index].name or self.label(index)) + scope

    def share_memory(self, first: int, second: int) -> bool:
        """Whether no copy is needed between two VDevices, by their positions; those that are unknown share none."""
        if first == second:
            return True
        return first >= 0 and second >= 0 and self._memory(first) == self._memory(second) is not None

    def _memory(self, index: int) -> str | None:
        """The name of the memory of a VDevice, None if it shares none: CPUs share the global scope."""
        device = self.devices[index]
        of_cpus = _HOST_MEMORY if kind_of(device.target) == _CPU and device.memory_scope == GLOBAL else None
        return self.facts[index].memory or of_cpus

    def is_free_copy(self, first: int, second: int) -> bool:
        """Whether a program copies nothing between two VDevices, by their positions: CPUs that share a memory."""
        kinds = {kind_of(self.devices[index].target) for index in (first, second)}
        return kinds == {_CPU} and self.share_memory(first, second)

    def set_memory(self, device: str, memory: str) -> None:
        """The global scope of a device, by its name or label, is the memory of this name."""
        place = self.whole(device)
        index = self.index(self.vdevice(replace(place, scope=GLOBAL)))
        assert index is not None, "it is in the list now"
        self.facts[index] = replace(self.facts[index], memory=memory)

    def global_infos(self, mod: IRModule) -> dict[str, list[ir.GlobalInfo]]:
        """The global infos of ``mod`` with the list as it is now."""
        return {
            **{key: list(infos) for key, infos in mod.global_infos.items()},
            "vdevice": list(self.devices),
        }

    def _name(self, target: Target, number: int) -> str:
        same = zip(self.devices, self.facts, strict=False)
        return next(
            (f.name for d, f in same if str(d.target) == str(target) and int(d.vdevice_id) == number), ""
        )

    def _option(self, index: int) -> DevicePlace:
        device = self.devices[index]
        return DevicePlace(
            kind_of(device.target), device.target, int(device.vdevice_id), str(device.memory_scope)
        )

    def _given(self, device: Named, name: str) -> DevicePlace:
        place = self.named(device)
        place = replace(place, scope=place.scope or GLOBAL, device_id=place.device_id or 0)
        index = self.index(self.vdevice(place))
        if name and index is not None:
            self.facts[index] = replace(self.facts[index], name=name)
        return place


def vdevices_of(mod: IRModule) -> Sequence[relax.VDevice]:
    """The VDevices of a module, in the order that labels count."""
    infos = mod.global_infos.get("vdevice", ())
    return [info for info in infos if isinstance(info, relax.VDevice)]


def label_of(devices: Sequence[relax.VDevice], index: int) -> str:
    """``llvm:1`` for the second entry of kind ``llvm``."""
    kind = devices[index].target.kind.name
    return f"{kind}:{sum(device.target.kind.name == kind for device in devices[:index])}"


def _equal(first: relax.VDevice, second: relax.VDevice) -> bool:
    return (str(first.target), int(first.vdevice_id), str(first.memory_scope)) == (
        str(second.target),
        int(second.vdevice_id),
        str(second.memory_scope),
    )


def _target(place: DevicePlace) -> Target:
    assert place.target is not None
    return place.target


def _whole(target: Target) -> DevicePlace:
    return DevicePlace(kind_of(target), target, 0, GLOBAL)


def target_text(target: Target) -> str:
    """A target in a few words, such as ``llvm -mcpu=znver4``."""
    mcpu = target.attrs.get("mcpu")
    return target.kind.name + (f" -mcpu={mcpu}" if mcpu else "")
