"""The text of fingerprints, and the fields that describe this machine.

A fingerprint has a line ``name: value`` for each field, so that a person can read why two costs differ.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .. import runtime
from .caches import reported

_FAMILY = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU architecture", "CPU part")
"""Fields of ``/proc/cpuinfo``: the first three of x86, the others of Arm."""


def text_of(fields: Mapping[str, object]) -> str:
    """The fingerprint with these fields; empty ones are left out."""
    return "\n".join(f"{name}: {value}" for name, value in fields.items() if value)


def fields_of(fingerprint: str) -> dict[str, str]:
    """The fields in a fingerprint's text, by name."""
    lines = (line.partition(": ") for line in fingerprint.splitlines())
    return {name: value for name, _, value in lines}


def differences(here: str, there: str) -> dict[str, tuple[str, str]]:
    """The fields in which two fingerprints differ, with both values; the value of a missing field is empty."""
    ours, theirs = fields_of(here), fields_of(there)
    names = dict.fromkeys([*ours, *theirs])
    pairs = {name: (ours.get(name, ""), theirs.get(name, "")) for name in names}
    return {name: (one, other) for name, (one, other) in pairs.items() if one != other}


def machine() -> dict[str, str]:
    """The fields that describe this machine."""
    return {"machine": f"{_processor()}, {os.cpu_count()} cores, {_caches()}", "system": _system()}


def family() -> dict[str, str]:
    """The fields that describe all machines with a processor of this family."""
    return {"machine": f"any with {_family()}, {_caches()}", "system": _system()}


def _caches() -> str:
    said = reported()
    return f"L2 {said.l2_bytes // runtime.num_threads() >> 10} KiB, L3 {said.l3_bytes >> 10} KiB"


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


@cache
def _processor() -> str:
    """The name of the processor as the system reports it."""
    return _information().get("model name") or platform.processor() or platform.machine()


@cache
def _family() -> str:
    """The vendor, family and model of the processor. Its name is not enough: clouds rent all kinds as one."""
    said = _information()
    found = [f"{name} {said[name]}" for name in _FAMILY if name in said]
    return ", ".join(found) or _processor()


def instructions() -> str:
    """The instruction sets and other abilities of the processor, as the system reports them."""
    said = _information()
    return said.get("flags") or said.get("Features", "")


def _information() -> dict[str, str]:
    """What Linux says of the first processor; empty elsewhere."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().partition("\n\n")[0].splitlines() if information.exists() else []
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}
