"""``diagnose``: what is installed on this machine, what is missing and how to get it, and whether a compile can work.

Each part is examined by itself, so a broken part does not hide the others. PyTorch is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from ..database.location import is_url
from ..errors import first_line
from ..ffi import import_without_torch
from ..kept.surroundings import settings
from ..runtime.libraries import own_library
from .privacy import Privacy, privacy, without_secrets
from .stores import DatabaseState, KeptFiles, database_state, kept_files
from .system import (
    Gpu,
    Library,
    Pools,
    Processor,
    Toolchain,
    gpu_state,
    installed_libraries,
    pools,
    processor,
    toolchain,
    versions,
)
from .trial import TrialCompile, trial


@dataclass(frozen=True, slots=True)
class BackendState:
    """A backend, an inference runtime, or a plug-in that cannot be loaded."""

    name: str
    is_available: bool
    state: str
    """Its version, or why it cannot be used."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of an installation."""

    versions: Mapping[str, str]
    """Of this package, Python and the system, by name."""
    processor: Processor
    pools: Pools
    libraries: tuple[Library, ...]
    backends: tuple[BackendState, ...]
    """None where TVM cannot be imported."""
    toolchain: Toolchain
    gpu: Gpu
    database: DatabaseState
    kept: KeptFiles
    settings: Mapping[str, str]
    """The environment variables that change what is compiled or how it runs, without values of secrets."""
    trial: TrialCompile | None
    """How the compile of a small model went; None: it was not tried, for the reason in ``why_not``."""
    why_not: str | None
    """Why a compile cannot work here, and what to do; None if it can."""


def diagnose(database: str | Path | None = None) -> Diagnosis:
    """The state of this installation, without private text.

    ``database``: that of costs, by default a file in the user's cache directory. A small model is compiled without
    measuring, saved, and run in a process of its own; that takes a few seconds.
    """
    missing = _why_no_native_part() or _why_no_tvm()
    tried = None if missing else trial()
    backends = () if missing else _backends()  # loads the libraries, before the pools are examined
    costs = database_state(database)
    found = Diagnosis(
        versions(),
        processor(has_tvm=missing is None),
        pools(),
        installed_libraries(),
        backends,
        toolchain(has_tvm=missing is None),
        gpu_state(),
        costs,
        kept_files(database),
        without_secrets(settings()),
        tried,
        missing or (tried.problem if tried is not None else None) or costs.why_unusable,
    )
    return _privacy_for(database).of(found)


def _why_no_native_part() -> str | None:
    if own_library("runtime") is not None:
        return None
    return "the native libraries of unity_collage are missing: install its wheel, or the package from a clone with g++"


def _why_no_tvm() -> str | None:
    try:
        import_without_torch("tvm.relax")
    except Exception as error:  # a foreign package, which may fail in any way
        return f"TVM cannot be imported: {first_line(error)}: pip install --force-reinstall apache-tvm"
    return None


def _backends() -> tuple[BackendState, ...]:
    from ..backends.registry import statuses

    return tuple(BackendState(each.name, each.is_available, each.state) for each in statuses())


def _privacy_for(database: str | Path | None) -> Privacy:
    """Without the user and the host of a server, which errors of its driver name."""
    if database is None or not is_url(database):
        return privacy()
    try:
        url = make_url(str(database))
    except (ArgumentError, ValueError):
        return privacy()
    return privacy([url.host], [url.username])
