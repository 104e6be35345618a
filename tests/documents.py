"""The blocks of code in the documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[1]

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    *(f"docs/{path.relative_to(ROOT / 'docs')}" for path in sorted((ROOT / "docs").rglob("*.md"))),
)
"""The pages with code, as paths in the repository."""

_BLOCK = re.compile(
    r"^(?: *<!-- not run: (?P<reason>[^\n]+) -->\n)?"
    r'(?P<fence> *```)(?P<language>\w*)(?: title="(?P<file>[\w.]+)")?\n(?P<text>.*?)^(?P=fence)$',
    re.M | re.S,
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
    file: str | None
    """The file whose contents it shows: ``title="FILE"`` is behind the language."""

    @property
    def is_run(self) -> bool:
        """Whether it is code that a reader can run."""
        return self.reason is None and self.language in ("python", "bash")


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    written = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(
            page,
            written.count("\n", 0, m.start("text")) + 1,
            m["language"],
            dedent(m["text"]),
            m["reason"],
            m["file"],
        )
        for m in _BLOCK.finditer(written)
    ]
