"""The database of costs and the folders of kept programs and object code: where they are, and what is in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR

from ..database.costs import CostDatabase
from ..database.location import default_path, is_url, shown
from ..errors import DatabaseError
from ..kept.store import LIBRARY, files_in, folder_beside


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """A database of costs."""

    place: str
    exists: bool
    nbytes: int | None
    """The size of its file, with its log; None for a server, or where there is no file."""
    free_bytes: int | None
    """The bytes that are free on its disk; None for a server."""
    is_writable: bool | None
    """Whether costs can be stored; None for a server, where only a write would show it."""
    costs: int | None
    """How many rows it has, refusals included; None where it cannot be read."""
    doubtful: int | None
    """How many of the costs were disturbed by other work of the machine."""
    problem: str
    """Why it cannot be read or written, and what to do; empty if it can."""

    @property
    def why_unusable(self) -> str | None:
        """Why a compile with this file fails, or None: it is not a database of costs."""
        return self.problem if self.nbytes and self.costs is None else None


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """Finished programs and object code next to a database."""

    folder: str | None
    """The folder of programs; None if nothing is kept because the costs are on a server."""
    programs: int
    program_bytes: int
    functions: int
    """The number of functions with object code."""
    function_bytes: int


def database_state(where: str | Path | None) -> DatabaseState:
    """The state of a database, by default that of the user; nothing is created."""
    place = default_path() if where is None else where
    if is_url(place):
        costs, doubtful, problem = _counts(place)
        return DatabaseState(shown(place), not problem, None, None, None, costs, doubtful, problem)
    path = Path(place)
    folder = next(each for each in path.absolute().parents if S_ISDIR(_mode(each)))
    free = shutil.disk_usage(folder).free
    writable = os.access(path if _mode(path) else folder, os.W_OK) and os.access(folder, os.W_OK)
    why = (
        "" if writable else f"{folder} or the file cannot be written: costs will be measured again each time"
    )
    if not _mode(path):
        return DatabaseState(str(path), False, None, free, writable, None, None, why)
    costs, doubtful, problem = _counts(path)
    files = [path, path.with_name(f"{path.name}-wal")]
    nbytes = size_of(files)
    return DatabaseState(str(path), True, nbytes, free, writable, costs, doubtful, problem or why)


def _mode(path: Path) -> int:
    """The type and the permissions of what is at ``path``; 0 where nothing is, or where that cannot be seen."""
    with suppress(OSError):
        return path.stat().st_mode
    return 0


def kept_files(where: str | Path | None) -> KeptFiles:
    """What is kept next to a database, by default that of the user."""
    place = default_path() if where is None else where
    folder = folder_beside(place)
    if folder is None:
        return KeptFiles(None, 0, 0, 0, 0)
    programs, objects = files_in(folder), files_in(Path(place).with_name(f"{Path(place).stem}-objects"))
    number = sum(file.suffix == LIBRARY for file in programs)
    return KeptFiles(str(folder), number, size_of(programs), len(objects), size_of(objects))


def _counts(where: str | Path) -> tuple[int | None, int | None, str]:
    """The number of costs and of doubtful ones, or why they are not known."""
    try:
        with CostDatabase(where, read_only=True, create=False) as database:
            costs = database.costs()
    except DatabaseError as error:
        return None, None, str(error)
    return len(costs), sum(cost.doubtful for cost in costs), ""


def size_of(files: Iterable[Path]) -> int:
    """The bytes of files; another command may have removed some since they were listed."""
    total = 0
    for file in files:
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total
