"""Files that commands read and write, and what is wrong with their names."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ..errors import CollageError, is_file, not_a_file
from ..lowering.library_file import why_no_file
from .exit_codes import UsageError

STANDARD = "-"
"""The name of a file that stands for standard output or input."""

_MODELS = ("model", "compiled_from", "first", "second", "program", "plan")
"""Arguments that are files to read, by their names here."""

_LIBRARIES = "custom_op_library"
"""The argument that is a list of files to read."""

_READ = (*_MODELS, "inputs", "verify", "database")
_WRITTEN = {
    "output": "--output ",
    "bundle": "--bundle ",
    "trace": "--trace ",
    "report": "--report ",
    "file": "",
}
"""The option of each file that is written, for messages; ``file`` is an argument of ``db export``."""


def check_read(options: Namespace) -> None:
    """Raises CollageError for a file that is missing or cannot be read. This needs no TVM, which is slow to load."""
    if options.command == "db":  # its files are databases, or URLs of them
        return
    named = (getattr(options, name, None) for name in _MODELS)
    for path in filter(None, (*named, *getattr(options, _LIBRARIES, ()))):
        if not is_file(path):
            raise CollageError(not_a_file(path))
        if not os.access(path, os.R_OK):
            raise CollageError(f"{path} cannot be read: permission denied")


def check_written(option: str, path: str | None, suffixes: Sequence[str] = ()) -> None:
    """Raises UsageError for a name that has none of the ``suffixes``, and CollageError where no file can be written."""
    if path is None:
        return
    if path == STANDARD and suffixes:
        raise UsageError(f"{option} - is not possible: name a file")
    if suffixes and Path(path).suffix not in suffixes:
        ends = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise UsageError(f"{option} {path}: the name of the file ends in {ends}")
    if (reason := why_no_file(path)) is not None:
        raise CollageError(f"{option} {path} cannot be written: {reason}")


def check_overwritten(options: Namespace) -> None:
    """Raises UsageError where a command would write over a file that it reads, or over another that it writes."""
    read = [*(getattr(options, name, None) for name in _READ), *getattr(options, _LIBRARIES, ())]
    places = {os.path.realpath(path): path for path in read if isinstance(path, str)}
    for name, option in _WRITTEN.items():
        if (path := getattr(options, name, None)) is None:
            continue
        if (other := places.get(place := os.path.realpath(path))) is not None:
            raise UsageError(f"{option}{path} would overwrite {other}: choose another name")
        places[place] = path
