"""What a command has said on standard error, without the lines that tell its progress."""

from __future__ import annotations

import re

_PROGRESS = re.compile(r"\[ *\d+ s\] ")


def errors_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if not _PROGRESS.match(line)]
