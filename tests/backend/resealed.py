"""Saved programs with other facts, as if another version or another machine had saved them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unity_collage.lowering.library_file import opened
from unity_collage.lowering.seal import facts_in, seal

FOOTER = 40
"""The bytes of the footer, which begins with the length of the program."""


def facts_of(path: Path) -> dict[str, Any]:
    with opened(path) as file:
        return facts_in(file)


def resealed(saved: Path, path: Path, **changes: Any) -> Path:
    """``path``, with the program in ``saved`` and other facts."""
    facts, data = facts_of(saved), saved.read_bytes()
    nbytes = int.from_bytes(data[-FOOTER : -FOOTER + 8], "little")
    path.write_bytes(data[:nbytes])
    seal(path, facts | changes)
    return path
