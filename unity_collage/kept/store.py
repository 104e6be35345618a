"""The folder of kept programs: a library for each, and a record of what it was made of.

A program appears in one step: first its library is written under a unique name, then the record that names it. So
processes may keep and read one program at once. A damaged program is removed and compiled again.
"""

from __future__ import annotations

import json
import os
import secrets
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from ..database.location import default_path, is_url
from ..errors import CollageError, is_of_user
from ..lowering import library_file
from ..lowering.object_store import keep_small

MOST_BYTES = 4 << 30
"""The programs that were not used for the longest time are removed beyond this. Programs are as large as their weights:
this is forty of ResNet-50's size, or nine of BERT's."""

LARGEST_BYTES = MOST_BYTES // 4
"""A larger program is not kept: it would displace too many others."""

_RECORD = ".record"

LIBRARY = ".so"
"""The suffix of programs."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is known about a kept program besides its library."""

    library: str
    """The name of its file."""
    created: float
    """When it was compiled, in seconds since the epoch."""
    questions: list[list[Any]] = field(default_factory=list[list[Any]])
    """What its compile asked the database, as :meth:`unity_collage.database.answers.Answers.questions` tells it."""
    answers: str = ""
    """A digest of the answers."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """The digests of the files with weights that the model's file names, by their names there."""
    unfinished: float | None = None
    """The part of its cost by which another plan may be cheaper, because time for measuring ran out.

    None: it did not.
    """
    explanation: Mapping[str, Any] | None = None
    """Why each candidate was chosen or not, by function, encoded; None if that was not asked for."""
    in_place: Mapping[str, Any] | None = None
    """The times of kernels in the running program, by function, encoded; None: it was not profiled."""
    profiled: float = 0.0
    """When it was profiled, in seconds since the epoch."""


class ProgramStore:
    """Kept programs in a folder. A folder that cannot be read or written is not an error: then nothing is kept."""

    def __init__(self, folder: Path):
        self.folder = folder

    def record(self, key: str) -> Record | None:
        """The record of this name; None if it is missing or incomplete."""
        path = self.folder / f"{key}{_RECORD}"
        try:
            return Record(**json.loads(zlib.decompress(path.read_bytes())))
        except OSError:
            return None
        except (zlib.error, ValueError, TypeError):
            self.remove(key)
            return None

    def opened(self, key: str, record: Record) -> BinaryIO | None:
        """The library of a record, verified and open.

        None if it is missing or damaged: then the record is removed too.
        """
        path = self.folder / record.library
        try:
            file = library_file.opened(path)
        except CollageError:
            self.remove(key, record.library)
            return None
        for used in (path, self.folder / f"{key}{_RECORD}"):
            with suppress(OSError):
                os.utime(used)  # for keep_small
        return file

    def put(self, key: str, save: Callable[[Path], None], **fields: Any) -> BinaryIO | None:
        """Keep the file that ``save`` writes to a path, with the ``fields`` of its record.

        None if that is not possible.

        The result is the library, open. An earlier program of this name is removed. What the user interrupts leaves no
        file.
        """
        path = self.folder / f"{key}.{secrets.token_hex(8)}{LIBRARY}"
        try:
            return self._put(key, path, save, fields)
        except BaseException as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            if isinstance(error, (OSError, CollageError)) and not is_of_user(error):
                return None  # the disk is full, or the folder is not ours
            raise

    def _put(
        self, key: str, path: Path, save: Callable[[Path], None], fields: Mapping[str, Any]
    ) -> BinaryIO | None:
        """:meth:`put` with the library at ``path``; None if it is too large."""
        before = self.record(key)
        self.folder.mkdir(parents=True, exist_ok=True)
        save(path)
        if path.stat().st_size > LARGEST_BYTES:
            path.unlink()
            return None
        file = path.open("rb")  # before another process can replace the program
        self._write(key, Record(path.name, time.time(), **fields))
        if before is not None:
            (self.folder / before.library).unlink(missing_ok=True)
        keep_small(self.folder, MOST_BYTES)
        return file

    def add(self, key: str, library: BinaryIO, **fields: Any) -> None:
        """Set ``fields`` of the record whose ``library`` is this open file; another program's is left alone."""
        record = self.record(key)
        with suppress(OSError):
            if record is not None and os.path.samestat(
                os.fstat(library.fileno()), (self.folder / record.library).stat()
            ):
                self._write(key, replace(record, **fields))

    def remove(self, key: str, library: str | None = None) -> None:
        """Remove a record, and its library if that is known."""
        for name in (f"{key}{_RECORD}", *([] if library is None else [library])):
            with suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)

    def _write(self, key: str, record: Record) -> None:
        draft = self.folder / f".{secrets.token_hex(8)}"
        try:
            draft.write_bytes(zlib.compress(json.dumps(asdict(record)).encode(), 1))
            draft.replace(self.folder / f"{key}{_RECORD}")
        finally:
            draft.unlink(missing_ok=True)


def files_in(folder: Path | None, before: float | None = None) -> list[Path]:
    """The files of programs, or of object code, in a folder; ``before``: those that were not used since then."""
    if folder is None:
        return []
    try:
        there = list(folder.iterdir())
    except OSError:  # there is no such folder, or it is closed
        return []
    return [path for path in there if before is None or path.stat().st_mtime < before]


def folder_beside(database: str | Path | None) -> Path | None:
    """The folder of programs next to the file of a database, by default that of the user; None for a server."""
    path = default_path() if database is None else database
    return None if is_url(path) else Path(path).with_name(f"{Path(path).stem}-programs")
