"""The object code of functions by what they compute, so that LLVM compiles each of them once.

A file has a digest of the object code and the code itself. It appears in one step, and a truncated or changed file
counts as missing. The name of a file is a digest of all that its code depends on, so nothing in the store is ever
stale.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

from cachetools import LRUCache

from ..errors import is_of_user

_IN_MEMORY_BYTES = 128 << 20
_ON_DISK_BYTES = 512 << 20
"""The files that were not read for the longest time are removed beyond this."""
_SUFFIX = ".code"
_CHECK = hashlib.sha256
_CHECK_BYTES = _CHECK().digest_size


class ObjectStore:
    """Object code by name, in memory and in a folder; None: in memory only.

    A folder that cannot be read or written is not an error: the code is compiled again. Several threads may use a
    store.
    """

    def __init__(self, folder: Path | None = None, read_only: bool = False):
        self.folder = folder
        self._read_only = read_only
        self._memory: LRUCache[str, bytes] = LRUCache(_IN_MEMORY_BYTES, getsizeof=len)
        self._lock = threading.Lock()
        self._is_prepared = False

    def get(self, name: str) -> bytes | None:
        """The code of this name, or None."""
        with self._lock:
            code = self._memory.get(name)
        if code is None and self.folder is not None:
            code = _read(self._path(name))
            if code is not None:
                self._remember(name, code)
        return code

    def put(self, name: str, code: bytes) -> None:
        """Store code under a name."""
        self._remember(name, code)
        if self.folder is None or self._read_only:
            return
        path = self._path(name)
        try:
            self._write(path, code)
        except OSError as error:  # the disk is full, or the folder is not ours
            if is_of_user(error):
                raise

    def _write(self, path: Path, code: bytes) -> None:
        """Write a file in one step."""
        self._prepare()
        draft = path.with_name(f".{secrets.token_hex(8)}")
        try:
            draft.write_bytes(_CHECK(code).digest() + code)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def _remember(self, name: str, code: bytes) -> None:
        with suppress(ValueError), self._lock:  # larger than all of the memory
            self._memory[name] = code

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}{_SUFFIX}"

    def _prepare(self) -> None:
        """Make the folder and limit its size, once in each process."""
        if self._is_prepared:
            return
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        keep_small(self.folder, _ON_DISK_BYTES)
        self._is_prepared = True


def _read(path: Path) -> bytes | None:
    try:
        stored = path.read_bytes()
        os.utime(path)  # for :func:`keep_small`
    except OSError as error:
        if is_of_user(error):
            raise
        return None
    code = stored[_CHECK_BYTES:]
    return code if _CHECK(code).digest() == stored[:_CHECK_BYTES] else None


def keep_small(folder: Path, nbytes: int) -> None:
    """Remove the oldest files of a folder until it holds at most ``nbytes``."""
    found: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        with suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= nbytes:
            return
        with suppress(OSError):
            path.unlink()
        total -= size


@lru_cache(maxsize=4)
def object_store(database: Path | None, read_only: bool = False) -> ObjectStore:
    """The store next to the file of a database of costs; without such a file it is in memory.

    A store that is ``read_only`` is read, and nothing is added to its folder.
    """
    folder = None if database is None else database.with_name(f"{database.stem}-objects")
    return ObjectStore(folder, read_only)


_in_scope: ContextVar[ObjectStore | None] = ContextVar("the store in use", default=None)
_of_this_process = ObjectStore()


def current_store() -> ObjectStore:
    """The store in scope; without one, that of this process."""
    return _in_scope.get() or _of_this_process


def keep_in(folder: str | None) -> None:
    """Let this process keep object code in a folder; None: in its memory only."""
    global _of_this_process
    _of_this_process = ObjectStore(None if folder is None else Path(folder))


@contextmanager
def using(store: ObjectStore) -> Iterator[None]:
    """Use ``store`` inside."""
    token = _in_scope.set(store)
    try:
        yield
    finally:
        _in_scope.reset(token)
