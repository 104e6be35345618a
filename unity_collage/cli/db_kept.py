"""The actions of ``unity-collage db`` on kept programs and object code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..database.costs import CostDatabase
from ..inspection.stores import size_of
from ..kept.store import LIBRARY, files_in, folder_beside
from ..lowering.object_store import object_store
from ..report.cells import counted


def kept_told(database: CostDatabase) -> Iterator[str]:
    """A line about the programs and one about the object code that are kept next to a database."""
    if programs := files_in(_folder(database)):
        number = sum(path.suffix == LIBRARY for path in programs)
        yield f"{counted(number, 'kept program')}, {_megabytes(programs)}"
    if objects := files_in(object_store(database.path).folder):
        yield f"object code of {counted(len(objects), 'function')}, {_megabytes(objects)}"


def remove_kept(database: CostDatabase, is_every: bool, before: float | None, is_dry: bool) -> int:
    """Remove every kept program, or those that were not used since ``before``; the result is how many.

    ``is_dry``: only count.
    """
    if not is_every and before is None:
        return 0
    doomed = files_in(_folder(database), None if is_every else before)
    if not is_dry:
        for path in doomed:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return sum(path.suffix == LIBRARY for path in doomed)


def _folder(database: CostDatabase) -> Path | None:
    return None if database.path is None else folder_beside(database.path)


def _megabytes(files: list[Path]) -> str:
    return f"{size_of(files) / 1e6:.1f} MB"
