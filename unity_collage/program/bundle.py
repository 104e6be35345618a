"""A folder with a program and every library that it needs except those of the system, for callers in C and C++."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import runtime
from ..errors import CollageError, is_of_user, last_line
from ..ffi import tvm_ffi
from ..runtime import libraries
from ..runtime.vendors import VENDORS

PROGRAM = "program.so"
_MANIFEST = "bundle.json"
_HEADERS = ("unity_collage.h", "unity_collage.hpp")
_COMPILERS = ("g++", "clang++", "c++", "gcc", "clang", "cc")
_CONFIG = "unity_collage_runtimeConfig.cmake"

_TRACE = """
import ctypes, json, sys
libraries, program = json.loads(sys.argv[1]), sys.argv[2]
for path in libraries:
    ctypes.CDLL(path, ctypes.RTLD_GLOBAL if "libtvm_runtime" in path else ctypes.RTLD_LOCAL)
runtime = ctypes.CDLL(next(path for path in libraries if "libcollage_runtime" in path))
runtime.collage_error.restype = ctypes.c_char_p
runtime.collage_open.restype = ctypes.c_void_p
if runtime.collage_open(program.encode()) is None:
    sys.exit(runtime.collage_error().decode())
print(json.dumps(sorted({line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if ".so" in line})))
"""
"""Opens a program as a caller in C does, and prints the libraries that it has mapped."""


def write_bundle(program: Path, folder: Path, backends: Sequence[str]) -> None:
    """Write the folder of a saved ``program`` with kernels of ``backends``; raises CollageError with the reason."""
    if reason := why_no_bundle(folder):
        raise CollageError(f"{folder} cannot be written: {reason}")
    draft = folder.with_name(f".{secrets.token_hex(8)}")
    try:
        (draft / "include").mkdir(parents=True)
        shutil.copyfile(program, draft / PROGRAM)
        _write_libraries(draft, backends)
        for header in _HEADERS:
            shutil.copyfile(libraries.own_file(f"include/{header}"), draft / "include" / header)
        shutil.copyfile(libraries.own_file(f"cmake/{_CONFIG}"), draft / _CONFIG)
        if folder.exists():
            folder.rmdir()
        draft.replace(folder)
    except OSError as error:
        if is_of_user(error):
            raise
        raise CollageError(f"{folder} cannot be written: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def why_no_bundle(folder: str | Path) -> str | None:
    """Why no bundle can be written to ``folder``, or None when nothing is known against it."""
    try:
        return _why_not_written(Path(folder))
    except OSError as error:  # the name is too long, or its parent is closed
        return str(error.strerror).lower()


def _why_not_written(folder: Path) -> str | None:
    if folder.is_file():
        return "it is a file: name a new folder for the bundle"
    if folder.is_dir() and any(folder.iterdir()):
        return "it is not empty: name a new folder for the bundle"
    if not folder.parent.is_dir():
        return f"there is no folder {folder.parent}"
    if not os.access(folder.parent, os.W_OK):
        return "permission denied"
    return None if any(map(shutil.which, _COMPILERS)) else "there is no C++ compiler to link the program"


def _write_libraries(folder: Path, backends: Sequence[str]) -> None:
    """Copy the libraries into ``folder``, and write a list of them."""
    try:
        ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi())
        needed = [str(path.resolve()) for path in (ffi, *libraries.needed_by(backends))]
    except RuntimeError as error:
        raise CollageError(str(error)) from error
    first = [Path(path).name for path in needed]
    copied = {Path(path).name: Path(path) for path in [*needed, *_mapped(needed, folder / PROGRAM)]}
    stand_ins = _stand_ins(backends)
    for path in (*copied.values(), *stand_ins.values(), *_opened(backends)):
        shutil.copyfile(path, folder / path.name)
    manifest = {
        "program": PROGRAM,
        # Libraries that others need come first: a loaded library is found by its name.
        "libraries": [*(name for name in copied if name not in first), *first],
        "stand_ins": {name: path.name for name, path in stand_ins.items()},
        "environment": _environment(backends),
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _mapped(needed: Sequence[str], program: Path) -> list[str]:
    """The libraries other than the system's that are mapped when a process of its own opens the program."""
    command = [sys.executable, "-I", "-S", "-c", _TRACE, json.dumps(needed), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CollageError(f"the program cannot be opened from C: {last_line(RuntimeError(done.stderr))}")
    return [
        path for path in json.loads(done.stdout) if _is_ours(Path(path)) and Path(path) != program.resolve()
    ]


def _is_ours(path: Path) -> bool:
    """Whether a library came with a package of Python: those of the system and of the interpreter are elsewhere."""
    return "site-packages" in path.parts or "dist-packages" in path.parts or _is_of_checkout(path)


def _is_of_checkout(path: Path) -> bool:
    return any(path.is_relative_to(Path(folder).resolve()) for folder in runtime.__path__)


def _opened(backends: Sequence[str]) -> list[Path]:
    """Libraries that those of vendors open themselves when a program runs."""
    vendors = [vendor for name in backends if (vendor := VENDORS[name]) is not None]
    return [path for vendor in vendors for path in vendor.opened_paths()]


def _stand_ins(backends: Sequence[str]) -> Mapping[str, Path]:
    """Replacements for libraries that the system of the bundle may lack, by the names of these."""
    vendors = [vendor for name in backends if (vendor := VENDORS[name]) is not None]
    path = libraries.own_library("openmp")
    return {vendor.system_library: path for vendor in vendors if vendor.system_library and path is not None}


def _environment(backends: Sequence[str]) -> Mapping[str, str]:
    """The environment variables that are set while vendors' libraries are loaded."""
    vendors = [vendor for name in backends if (vendor := VENDORS[name]) is not None]
    return {key: value for vendor in vendors for key, value in vendor.environment.items()}
