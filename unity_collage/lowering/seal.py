"""The seal of a saved program: facts about it, its length and a checksum, after the program in its file.

``runtime/src/base/seal.h`` describes it. It is written and verified there, for processes without Python as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..ffi import tvm_ffi
from ..runtime.libraries import load_base


def seal(path: Path, facts: Mapping[str, Any]) -> None:
    """Append the seal to the program at ``path``; raises RuntimeError or OSError."""
    with path.open("rb") as file:
        _ask("seal", file, json.dumps(facts))


def why_not_sealed(file: BinaryIO) -> str | None:
    """Why ``file`` is not a program as it was saved, or None."""
    return _text(_ask("why_not_sealed", file))


def facts_in(file: BinaryIO) -> Any:
    """The facts in a file that :func:`why_not_sealed` accepts."""
    return json.loads(str(_ask("sealed_facts", file)))


def why_not_here(file: BinaryIO) -> str | None:
    """Why the program in a sealed file cannot run with the native libraries that are loaded, or None."""
    return _text(_ask("why_not_here", file))


def _ask(question: str, file: BinaryIO, *more: str) -> Any:
    """Files are named by their number: their own names may be gone, or not be Unicode."""
    load_base()
    return tvm_ffi.get_global_func(f"collage.runtime.{question}")(f"/proc/self/fd/{file.fileno()}", *more)


def _text(found: Any) -> str | None:
    return None if found is None else str(found)
