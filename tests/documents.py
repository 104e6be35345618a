"""The blocks of code in the documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block between fences."""

    page: str
    """The path of its page in the repository."""
    line: int
    """The number of its first line there."""
    language: str
    """What the fence says; empty for output."""
    text: str
    reason: str | None
    """Why it is not run: ``<!-- not run: REASON -->`` is the line before."""


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    written = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, written.count("\n", 0, m.start("text")) + 1, m["language"], m["text"], m["reason"])
        for m in _BLOCK.finditer(written)
    ]
