"""Facts of virtual devices that TVM's VDevice lacks: names, free parts, memory, parts chosen by default."""

from __future__ import annotations

from dataclasses import dataclass

KIND, TARGET, ID, SCOPE = "kind", "target", "id", "scope"

PARTS = (KIND, TARGET, ID, SCOPE)
"""The parts of a place that may each be free: device type, target, device id, memory scope."""


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """Facts of one VDevice of the module; the list of them has the order of ``global_infos["vdevice"]``."""

    name: str = ""
    """The name of the device for users and in messages; empty: its label, such as ``llvm:1``."""
    free: tuple[str, ...] = ()
    """The ``PARTS`` that this VDevice leaves free, although TVM gives each a value."""
    memory: str = ""
    """The name of the memory of its scope. VDevices with the same name share the memory. Empty: that of the machine for
    CPUs in the scope ``global``, else a memory of its own."""


@dataclass(frozen=True, slots=True)
class FreelyPlaced:
    """Values for which no annotation specifies some parts of the place: a later plan may choose these parts again."""

    on: int
    """The VDevice that the values got, by its position; a value that is elsewhere now was placed by the user."""
    free: tuple[str, ...]
    """The ``PARTS`` that were chosen by default."""
    values: tuple[str, ...]
    """Names of variables; ``t.1`` is the second field of the tuple ``t``."""
