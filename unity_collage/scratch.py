"""Scratch: a temporary folder that is removed even if the process that made it is killed.

A folder holds a file on which its maker has a lock for as long as it runs, whatever its process id and its container.
When a process makes its first folder, it removes the folders of processes that have ended.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType

_PREFIX, _LOCK = "collage-", ".unity-collage-lock"


class Scratch:
    """A new temporary folder ``collage-PURPOSE-...``; it and its content are removed at the end of the ``with`` block.

    Outside of a ``with`` block call :meth:`cleanup`.
    """

    def __init__(self, purpose: str):
        _remove_abandoned(tempfile.gettempdir())
        self.name, lock = _new(purpose)
        """The absolute path."""
        self._removed = weakref.finalize(self, _remove, self.name, lock, os.getpid())

    def cleanup(self) -> None:
        """Remove the folder; does nothing if it is removed already."""
        self._removed()

    def __enter__(self) -> str:
        return self.name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cleanup()


def _new(purpose: str) -> tuple[str, int]:
    """The path of a new folder, and its file with our lock."""
    while True:
        name = tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-")
        lock = os.open(Path(name) / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_in(name, lock):
            return name, lock
        os.close(lock)  # another process took it for an abandoned one, locked it first, and removed it


def _remove(name: str, lock: int, maker: int) -> None:
    if os.getpid() == maker:  # a fork has a copy of the object
        shutil.rmtree(name, ignore_errors=True)
        os.close(lock)


@cache
def _remove_abandoned(parent: str) -> None:
    """Remove the folders in ``parent`` that were made by processes that have ended."""
    for folder in Path(parent).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # not ours, still in use, or being removed by another process
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        return
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_in(folder, lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _is_in(folder: str | Path, lock: int) -> bool:
    """Whether the open file ``lock`` is still the one in ``folder``."""
    try:
        return os.path.samestat(os.fstat(lock), (Path(folder) / _LOCK).stat())
    except FileNotFoundError:
        return False
