"""Writes programs as shared libraries, and reads them back."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tvm_ffi

from ..errors import CollageError, first_line


def export(executable: Any, path: str | Path) -> None:
    """Write an executable of the VM to ``path``; raises CollageError with the reason in one line."""
    if reason := why_no_library(path):
        raise CollageError(f"{path} cannot be written: {reason}")
    try:
        executable.export_library(str(path))
    except RuntimeError as error:  # the C++ compiler failed, or is missing
        raise CollageError(f"{path} cannot be written: {first_line(error)}") from error


def read(path: str | Path) -> Any:
    """The module in a shared library, even if this process has read another library from ``path`` before.

    The dynamic loader knows files by name, so the file gets a new name while it is loaded. TVM's own ``load_module``
    would resolve that name.
    """
    with TemporaryDirectory() as folder:
        alias = Path(folder) / "program.so"
        alias.symlink_to(Path(path).resolve())
        return tvm_ffi.load_module(str(alias))


def why_no_library(path: str | Path) -> str | None:
    """Why no shared library can be written to ``path``, or None when nothing is known against it."""
    if Path(path).suffix != ".so":
        return "the name of a shared library ends in .so"
    return why_no_file(path)


def why_no_file(path: str | Path) -> str | None:
    """Why no file can be written to ``path``, or None when nothing is known against it."""
    path = Path(path)
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return "permission denied"
    return None
