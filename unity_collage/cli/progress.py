"""What a command is doing: a bar on a terminal, a line every few seconds elsewhere. Both on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from ..cost.model import Progress as Report
from . import STARTED

_EVERY_SECONDS = 4.0
"""How long nothing is said at most."""


@contextmanager
def progress_bar(first: str = "starting") -> Iterator[Report]:
    """A function that shows what is being done: how much of how much, 0 where that is not known, and what."""
    console = Console(stderr=True)
    with _bar(console, first) if console.is_terminal else _lines(first) as report:
        yield report


@contextmanager
def _bar(console: Console, first: str) -> Iterator[Report]:
    columns = (SpinnerColumn(), TimeElapsedColumn(), BarColumn(20), MofNCompleteColumn(),
               TextColumn("{task.description}"))  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(first, total=None)

        def report(done: int, total: int, label: str) -> None:
            progress.update(task, completed=done, total=total or None, description=label or first)

        yield report


@contextmanager
def _lines(first: str) -> Iterator[Report]:
    """The first line at once, and then one whenever nothing was said for a while."""
    said = _Said(first)
    thread = threading.Thread(target=said.repeat, daemon=True)
    thread.start()
    try:
        yield said.report
    finally:
        said.ended.set()
        thread.join()


class _Said:
    def __init__(self, first: str) -> None:
        self.ended = threading.Event()
        self._what = first
        self._say()

    def report(self, done: int, total: int, label: str) -> None:
        if label:
            self._what = f"{done} of {total}: {label}" if total > 1 else label

    def repeat(self) -> None:
        while not self.ended.wait(_EVERY_SECONDS):
            self._say()

    def _say(self) -> None:
        print(f"[{time.monotonic() - STARTED:3.0f} s] {self._what}", file=sys.stderr, flush=True)
