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
    said = reported()
    caches = f"L2 {said.l2_bytes // runtime.num_threads() >> 10} KiB, L3 {said.l3_bytes >> 10} KiB"
    return {"machine": f"{_processor()}, {os.cpu_count()} cores, {caches}", "system": _system()}


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


@cache
def _processor() -> str:
    """The name of the processor as the system reports it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
