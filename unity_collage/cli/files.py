"""Files that commands write."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import CollageError
from ..lowering.library_file import why_no_file

STANDARD = "-"
"""The name of a file that stands for standard output or input."""


def write(path: Path, data: bytes) -> None:
    """Write ``data`` in one step, so that there is never a half-written file."""
    if (reason := why_no_file(path)) is not None:
        raise CollageError(f"{path} cannot be written: {reason}")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
