"""What is known of virtual devices beside TVM's VDevice: names, free parts, memory, what was chosen by default."""

from __future__ import annotations

from dataclasses import dataclass

KIND, TARGET, ID, SCOPE = "kind", "target", "id", "scope"

PARTS = (KIND, TARGET, ID, SCOPE)
"""The parts of a place that may each be free: device type, target, device id, memory scope."""


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """Facts of one VDevice of the module; the list of them has the order of ``global_infos["vdevice"]``."""

    name: str = ""
    """What users and messages call the device; empty: its label, such as ``llvm:1``."""
    free: tuple[str, ...] = ()
    """The ``PARTS`` that this VDevice does not say, although TVM gives each a value."""
    memory: str = ""
    """The name of the memory that its scope is. VDevices with one name share it; empty: a memory of its own."""


@dataclass(frozen=True, slots=True)
class FreelyPlaced:
    """Values that no annotation has placed in some parts: a later plan may choose these parts anew."""

    on: int
    """The VDevice that the values got, by its position; a value that is elsewhere now has been placed by somebody."""
    free: tuple[str, ...]
    """The ``PARTS`` that were chosen by default."""
    values: tuple[str, ...]
    """Names of variables; ``t.1`` is the second field of the tuple ``t``."""
