"""Backends of other packages: the values that their entry points name, and the problems of those that fail to load."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import Any, BinaryIO, TextIO

from ..errors import first_line
from .base import Backend

ENTRY_POINT_GROUP = "unity_collage.backends"
"""The group of entry points in which packages name their Backend values."""

_LOGGER = logging.getLogger(__name__)

_STDOUT = 1


@dataclass(frozen=True, slots=True)
class Plugin:
    """The result of loading one entry point."""

    name: str
    """The name of the entry point, or of the package if its entry points cannot be read."""
    origin: str
    """The entry point's ``module:name``."""
    backend: Backend | None
    problem: str = ""
    """Why there is no backend, or which side effects its import had; empty if all is well."""


def plugins() -> tuple[Plugin, ...]:
    """One plug-in for each entry point, sorted by name; problems are logged too.

    No exception leaves this function but KeyboardInterrupt. Text that an import prints on standard output goes to
    standard error, so that the output of a command stays clean. The working directory is restored.
    """
    points, unreadable = _entry_points()
    found = [*unreadable, *(_loaded(point) for point in points)]
    for plugin in found:
        if plugin.problem:
            state = "is left out" if plugin.backend is None else "misbehaves"
            _LOGGER.warning("backend %s of %s %s: %s", plugin.name, plugin.origin, state, plugin.problem)
    return tuple(sorted(found, key=lambda plugin: plugin.name))


def _entry_points() -> tuple[list[EntryPoint], list[Plugin]]:
    """The entry points of our group, and a broken plug-in for each package with unreadable entry points."""
    try:
        return list(entry_points(group=ENTRY_POINT_GROUP)), []
    except Exception:  # one broken package breaks the list of all packages: read them one by one
        pass
    points: list[EntryPoint] = []
    broken: list[Plugin] = []
    seen: set[str] = set()
    for package in distributions():
        name = str(package.metadata["Name"])
        if name in seen:
            continue
        seen.add(name)
        try:
            points += [point for point in package.entry_points if point.group == ENTRY_POINT_GROUP]
        except Exception as error:
            reason = f"its entry_points.txt cannot be read: {described(error)}"
            broken.append(Plugin(name, f"the package {name}", None, reason))
    return points, broken


def _loaded(point: EntryPoint) -> Plugin:
    try:
        with _side_effects() as effects:
            found = _value(point)
    except (
        OSError
    ) as error:  # no folder for temporary files, or the working directory cannot be entered again
        return Plugin(point.name, point.value, None, f"it cannot be imported here: {described(error)}")
    if isinstance(found, str):
        return Plugin(point.name, point.value, None, "; ".join([found, *effects]))
    return Plugin(point.name, point.value, found, "; ".join(effects))


def _value(point: EntryPoint) -> Backend | str:
    """The backend that an entry point names, or why there is none."""
    if EntryPoint.pattern.match(point.value) is None:
        return f"{point.value!r} is not of the form module:name"
    try:
        value = point.load()
    except KeyboardInterrupt:
        raise
    except (
        BaseException
    ) as error:  # SystemExit too: whatever foreign code does, only its own backend is missing
        return f"importing it failed: {described(error)}"
    return why_not_backend(value) or value


def why_not_backend(value: object) -> str | None:
    """Why the value that an entry point names cannot be used as a backend, or None."""
    if not isinstance(value, Backend):
        return f"it is a {type(value).__name__}, not a Backend"
    if not isinstance(value.name, str) or not value.name:
        return f"its name is {value.name!r}, not a text"
    return None


def described(error: BaseException) -> str:
    """The class of an error and the first line of its text."""
    line = first_line(error)
    kind = type(error).__name__
    return kind if line == kind else f"{kind}: {line}"


@contextmanager
def _side_effects() -> Iterator[list[str]]:
    """A scope in which third-party code is imported.

    At its end the list has the side effects, which have been undone.
    """
    effects: list[str] = []
    with _same_folder(effects), _no_output(effects):
        yield effects


@contextmanager
def _same_folder(effects: list[str]) -> Iterator[None]:
    try:
        before = os.open(".", os.O_PATH)
    except OSError:  # there is none
        yield
        return
    try:
        yield
    finally:
        try:
            if not _is_here(before):
                os.fchdir(before)
                effects.append("importing it changed the working directory, which was changed back")
        finally:
            os.close(before)


def _is_here(folder: int) -> bool:
    """Whether the open ``folder`` is the working directory."""
    try:
        return os.path.samestat(os.fstat(folder), os.stat("."))  # noqa: PTH116
    except OSError:
        return False


@contextmanager
def _no_output(effects: list[str]) -> Iterator[None]:
    """A scope in which the standard output of Python, C and child processes goes to standard error."""
    with tempfile.TemporaryFile() as output:
        with _descriptor_to(output), _python_to(output):
            yield
        output.seek(0)
        text = output.read().decode(errors="replace")
    if text:
        effects.append("importing it printed on standard output")
        print(text, end="", file=sys.stderr)


@contextmanager
def _descriptor_to(output: BinaryIO) -> Iterator[None]:
    """A scope in which file descriptor 1 is ``output``."""
    try:
        before = os.dup(_STDOUT)
    except OSError:  # it is closed: nothing can be written
        yield
        return
    _flush_c()
    os.dup2(output.fileno(), _STDOUT)
    try:
        yield
    finally:
        _flush_c()
        os.dup2(before, _STDOUT)
        os.close(before)


def _flush_c() -> None:
    ctypes.CDLL(None).fflush(None)


class _Switch:
    """A file with a target that can be switched. A logging handler that keeps it writes to the current target."""

    def __init__(self, file: TextIO):
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@contextmanager
def _python_to(output: BinaryIO) -> Iterator[None]:
    """A scope in which ``sys.stdout`` is ``output``: in a notebook it is not file descriptor 1."""
    before = sys.stdout
    if before is None:
        yield
        return
    before.flush()
    with os.fdopen(os.dup(output.fileno()), "w", encoding="utf-8", errors="replace") as text:
        switch: Any = _Switch(text)
        sys.stdout = switch
        try:
            yield
        finally:
            sys.stdout = switch.file = before
