"""What a program depends on apart from its model and options: code, installed packages, machine, settings.

Declared versions are enough for costs, but not for programs: in a checkout the code of a pass changes without a new
version. So the digest covers the files of this package and of plug-ins, and the names and versions of all installed
packages.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from .. import runtime
from ..machine.device import device, driver_version
from ..machine.fingerprint import instructions, machine
from ..runtime.libraries import own_library, tvm_runtime

_PACKAGE = Path(__file__).resolve().parents[1]

_SETTINGS = ("CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "GOMP_", "KMP_", "LD_", "MALLOC_", "NVIDIA_", "OMP_", "ONEDNN_",
             "OPENBLAS_", "TVM_")  # fmt: skip
"""Prefixes of environment variables that change what is compiled, or how it runs."""

_COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
"""TVM links programs with the first of these that it finds; without one a program is a file of object code."""

_PLUGINS = ("[unity_collage.backends]", "[tvm.backends]")
"""Groups of entry points that can change the program of a model."""


def surroundings(target: str) -> dict[str, Any] | None:
    """Everything except model and options that can change a program for ``target``, as JSON data.

    None if it is not known, because a file of this package has changed since this process began to read them.
    """
    code = _code()
    if code is None:
        return None
    return {
        "code": code,
        "packages": _packages(),
        "python": sys.version,
        "tvm": [_state(path) for path in _libraries_of_tvm()],
        "machine": {**machine(), "instructions": instructions()},
        "threads": runtime.num_threads(),
        "gpu": f"{device()}, driver {driver_version()}" if "cuda" in target else "",
        "settings": settings(),
        "linker": os.environ.get("CXX") or os.environ.get("CC") or any(map(which, _COMPILERS)),
    }


def settings() -> dict[str, str]:
    """The environment variables that change what is compiled, or how it runs."""
    return {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_SETTINGS)}


@cache
def _code() -> str | None:
    """A digest of the files of this package and of plug-ins, or None if one has changed since the process began."""
    known, began = hashlib.sha256(), _began()
    for root in _roots():
        for path in _files(root):
            if path.stat().st_ctime > began:
                return None
            known.update(f"{path.relative_to(root.parent)}\n".encode())
            known.update(hashlib.sha256(path.read_bytes()).digest())
    return known.hexdigest()


def _roots() -> list[Path]:
    """The folders and files of code: of this package, of its native libraries where they are elsewhere, of plug-ins."""
    library = own_library("runtime")
    native = [] if library is None or _PACKAGE in library.parents else [library.parent]
    return [_PACKAGE, *native, *_plugins()]


def _files(root: Path) -> list[Path]:
    """The files in a folder, without the sources of native libraries and what Python caches; a file itself."""
    if root.is_file():
        return [root]
    skipped = {"__pycache__", str(_PACKAGE / "runtime" / "src")}
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not skipped & {name, os.path.join(folder, name)}]  # noqa: PTH118
        found += [Path(folder, name) for name in files]
    return sorted(found)


def _plugins() -> Iterator[Path]:
    """The packages of plug-ins, which are found and not imported."""
    for name in sorted({name for points in _entry_points() for name in _modules(points)} - {_PACKAGE.name}):
        with suppress(ImportError, ValueError):
            spec = find_spec(name)
            if spec is not None and spec.submodule_search_locations:
                yield from map(Path, spec.submodule_search_locations)
            elif spec is not None and spec.origin is not None:
                yield Path(spec.origin)


def _entry_points() -> Iterator[str]:
    """The texts of those files of entry points that name plug-ins."""
    for path in _installed():
        with suppress(OSError, UnicodeDecodeError):
            text = (path / "entry_points.txt").read_text(encoding="utf-8")
            if any(group in text for group in _PLUGINS):
                yield text


def _modules(entry_points: str) -> Iterator[str]:
    """The outermost packages that these entry points name in our groups."""
    is_ours = False
    for line in entry_points.splitlines():
        if line.startswith("["):
            is_ours = line.strip() in _PLUGINS
        elif is_ours and "=" in line:
            yield line.partition("=")[2].partition(":")[0].strip().partition(".")[0]


def _packages() -> list[str]:
    """The names and versions of all installed packages: those of their folders of metadata."""
    return sorted({path.name for path in _installed()})


@cache
def _installed() -> tuple[Path, ...]:
    found: list[Path] = []
    for folder in _unique(sys.path):
        with suppress(OSError):
            found += [
                Path(folder or ".", name)
                for name in os.listdir(folder or ".")  # noqa: PTH208
                if name.endswith((".dist-info", ".egg-info"))
            ]
    return tuple(found)


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _libraries_of_tvm() -> list[Path]:
    """The libraries next to TVM's runtime, with it: one of them is the compiler."""
    path = tvm_runtime()
    return [] if path is None else sorted(path.parent.glob("libtvm*.so"))


def _state(path: Path) -> list[Any]:
    """The path, the size and the time of the last change, for a file that is too large to be read."""
    status = path.stat()
    return [str(path), status.st_size, status.st_mtime_ns]


@cache
def _began() -> float:
    """When this process began, in seconds since the epoch."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))
