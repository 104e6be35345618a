"""Writes modules of TVM as shared libraries, or as the object files that :mod:`.object_file` describes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tvm.support import cc

from .imports_object import ImportsApart, packed_imports


def write(module: Any, path: Path) -> None:
    """Write a module of TVM and what it imports as object files; raises RuntimeError or OSError.

    Parts that are C source need a compiler in any case, and make a shared library.
    """
    _exported(module, path, _archive, packed_imports)


def write_linked(module: Any, path: Path) -> None:
    """Write a shared library, where :func:`has_linker_for` the module's processor holds."""
    imports = ImportsApart()
    _exported(module, path, _linked, imports.packed)
    imports.append(path)


def has_linker_for(processor: str) -> bool:
    """Whether there is a C++ compiler for a processor, as Linux names it; empty: that of this machine.

    The user may name a compiler in ``CXX`` or ``CC``, such as a cross compiler.
    """
    compiler, here = cc.get_cc(), os.uname().machine
    is_ours = not (os.environ.get("CXX") or os.environ.get("CC"))
    if compiler is None or (is_ours and processor in ("", here)):
        return compiler is not None
    try:
        said = subprocess.run([compiler, "-dumpmachine"], check=False, capture_output=True, text=True)
    except OSError:  # the user named a compiler that does not exist
        return False
    return said.stdout.partition("-")[0] == (processor or here)


def _exported(executable: Any, path: Path, link: Callable[..., None], pack: Callable[..., str]) -> None:
    executable.export_library(str(path), fcompile=link, fpack_imports=pack)


def _linked(path: str, files: Sequence[str], **options: Any) -> None:
    """Link a shared library; it takes less than a second, for which Ctrl-C waits."""
    with _without_interrupts():
        cc.create_shared(path, list(files), **options)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block, also in processes that are started inside.

    In a terminal Ctrl-C would end the linker itself. A compile that only stops to measure would fail then.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _archive(path: str, files: Sequence[str], **_options: Any) -> None:
    """A stand-in for the linker that ``export_library`` calls."""
    if any(Path(name).suffix != ".o" for name in files):
        if cc.get_cc() is None:
            raise RuntimeError(
                "a part of it is C source, which needs a C++ compiler: install one, such as g++"
            )
        _linked(path, files)
        return
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number, name in enumerate(files):
            content = Path(name).read_bytes()
            member = tarfile.TarInfo(
                f"{number}.o"
            )  # without times and owners: equal programs are equal files
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
