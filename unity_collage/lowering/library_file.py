"""Writes programs as files, shared libraries or object files, and reads them back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import tvm_ffi

from ..errors import CollageError, first_line, is_of_user
from ..runtime.libraries import load_base
from . import object_file
from .seal import seal, why_not_sealed

_PIECE_BYTES = 1 << 20


def export(executable: Any, path: str | Path, facts: Mapping[str, Any], *, is_linked: bool = True) -> None:
    """Write an executable of the VM, and ``facts`` about it, to ``path`` in one step.

    It becomes a shared library if ``is_linked`` and there is a C++ compiler for the program's processor, else a file
    of object code. Raises CollageError with the reason in one line.
    """
    from . import writing  # of a process that compiles: it needs TVM

    path = _writable(path)
    draft = path.with_name(f".{os.urandom(16).hex()}.so")
    try:
        if is_linked and writing.has_linker_for(facts.get("processor", "")):
            writing.write_linked(executable, draft)
        else:
            writing.write(executable, draft)
        seal(draft, facts)
        draft.replace(path)
    except (RuntimeError, OSError) as error:  # the C++ compiler failed; the disk is full
        if is_of_user(error):
            raise
        raise CollageError(f"{path} cannot be written: {first_line(error)}") from error
    finally:
        draft.unlink(missing_ok=True)


def copy(file: BinaryIO, path: str | Path) -> None:
    """Write the program in ``file`` to ``path`` in one step; raises CollageError with the reason in one line."""
    import shutil  # a process that only runs a program starts faster without it

    path = _writable(path)
    draft = path.with_name(f".{os.urandom(16).hex()}.so")
    try:
        with draft.open("wb") as target:
            shutil.copyfileobj(file, target, _PIECE_BYTES)
        draft.replace(path)
    except OSError as error:
        if is_of_user(error):
            raise
        raise CollageError(f"{path} cannot be written: {first_line(error)}") from error
    finally:
        draft.unlink(missing_ok=True)


def opened(path: str | Path) -> BinaryIO:
    """The file of a saved program; raises CollageError if it is not one, or is incomplete."""
    try:
        file = Path(path).open("rb")  # noqa: SIM115  # the caller closes it
        if reason := why_not_sealed(file):
            file.close()
            raise CollageError(f"{path} cannot be loaded as a program: {reason}")
        return file
    except OSError as error:
        if is_of_user(error):
            raise
        raise CollageError(f"{path} cannot be read: {error.strerror}") from error


def name_of(file: BinaryIO) -> Path:
    """A path of an open file, even if its own name is gone by now, or is that of another file."""
    return Path(f"/proc/self/fd/{file.fileno()}")


def reopened(file: BinaryIO) -> BinaryIO:
    """The file of a saved program at its beginning, with a position of its own, even if its name is gone by now.

    Raises CollageError if it has changed since.
    """
    again = name_of(file).open("rb")  # the caller closes it
    if reason := why_not_sealed(again):
        again.close()
        raise CollageError(f"the file of the program cannot be copied: {reason}")
    again.seek(0)
    return again


def read(path: str | Path) -> Any:
    """The module in a file. ``path`` may be that of an open file: then it is the file that was opened.

    The dynamic loader has a file in memory once, so all who load a file share its module. It is unmapped when nothing
    refers to the module or to one of its functions. Raises RuntimeError for a file that was written to meanwhile.
    """
    if not object_file.is_linked(Path(path)):
        return object_file.read(Path(path))
    load_base()
    with Path(path).open("rb") as file:
        module = tvm_ffi.get_global_func("collage.runtime.loaded_file")(str(name_of(file)))
    if module is None:
        raise RuntimeError("it was written to while this process uses it: end what uses it first")
    return module


def why_no_library(path: str | Path) -> str | None:
    """Why no shared library can be written to ``path``, or None when nothing is known against it."""
    if Path(path).suffix != ".so":
        return "the name of a shared library ends in .so"
    return why_no_file(path)


def why_no_file(path: str | Path) -> str | None:
    """Why no file can be written to ``path``, or None when nothing is known against it."""
    try:
        return _why_not_written(_place(Path(path)))
    except OSError as error:  # the name is too long, or its folder is closed
        return str(error.strerror).lower()


def _why_not_written(path: Path) -> str | None:
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if path.exists() and not os.access(path, os.W_OK):
        return "permission denied"
    if _is_special(path) or os.access(path.parent, os.W_OK):
        return None
    return f"files in {path.parent} cannot be replaced" if path.exists() else "permission denied"


def write(path: Path, data: bytes) -> None:
    """Write ``data`` in one step, so that there is never a half-written file; raises CollageError.

    A device or a pipe gets the data as they are.
    """
    if (reason := why_no_file(path)) is not None:
        raise CollageError(f"{path} cannot be written: {reason}")
    if _is_special(path):
        path.write_bytes(data)
        return
    place = _place(path)
    draft = place.with_name(f".{os.urandom(16).hex()}")
    try:
        draft.write_bytes(data)
        draft.replace(place)
    except OSError as error:  # the disk is full
        if is_of_user(error):
            raise
        raise CollageError(f"{path} cannot be written: {first_line(error)}") from error
    finally:
        draft.unlink(missing_ok=True)


def _writable(path: str | Path) -> Path:
    """Where a library is written."""
    if reason := why_no_library(path):
        raise CollageError(f"{path} cannot be written: {reason}")
    return _place(Path(path))


def _place(path: Path) -> Path:
    """The file that is written: what a link names, so that the link stays one."""
    return Path(os.path.realpath(path)) if path.is_symlink() and not _is_special(path) else path


def _is_special(path: Path) -> bool:
    """Whether ``path`` is a device or a pipe, such as ``/dev/stdout``, which no file may replace."""
    return path.exists() and not path.is_file() and not path.is_dir()
