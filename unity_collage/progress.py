"""Progress: a bar on a terminal and in a notebook, else a line every few seconds on standard error.

In a notebook rich shows a bar only with ipywidgets, and these need a front end that knows them. An element of HTML that
is updated needs neither.
"""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

_UPDATE_SECONDS = 0.2
"""The shortest time between two updates of a notebook."""

Report = Callable[[int, int, str], None]
"""Called with the number of finished steps, the number of all steps (0 if unknown), and the name of the step."""

_EVERY_SECONDS = 4.0
"""The longest time between two lines."""


@contextmanager
def shown(first: str = "starting", since: float | None = None) -> Iterator[Report]:
    """A function that shows what is being done; ``first`` until its first call.

    ``since``: the beginning, in seconds of the monotonic clock; None: now.
    """
    console = Console(stderr=True)
    begin = time.monotonic() if since is None else since
    if console.is_jupyter:
        with _element(first) as report:
            yield report
        return
    with _bar(console, first) if console.is_terminal else _lines(first, begin) as report:
        yield report


@contextmanager
def _bar(console: Console, first: str) -> Iterator[Report]:
    columns = (SpinnerColumn(), TimeElapsedColumn(), BarColumn(20), MofNCompleteColumn(),
               TextColumn("{task.description}", markup=False))  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        number = progress.add_task(first, total=None)
        (task,) = progress.tasks

        def report(done: int, total: int, label: str) -> None:
            progress.update(number, completed=done, description=label or None)
            # After the last step of some, others follow: the clock and the spinner go on, and their number is unknown.
            task.total, task.finished_time = total or None, None

        yield report


@contextmanager
def _element(first: str) -> Iterator[Report]:
    """A bar in the output of a notebook's cell, which is empty at the end."""
    display = import_module("IPython.display")
    handle = display.display(display.HTML(_bar_html(0, 0, first)), display_id=True)
    next_time = 0.0

    def report(done: int, total: int, label: str) -> None:
        nonlocal next_time
        if not total or time.monotonic() >= next_time:  # a step of unknown length may be a long one
            next_time = time.monotonic() + _UPDATE_SECONDS
            handle.update(display.HTML(_bar_html(done, total, label or first)))

    try:
        yield report
    finally:
        handle.update(display.HTML(""))


def _bar_html(done: int, total: int, label: str) -> str:
    """An element that notebooks draw as a bar; without a total it only moves."""
    value, said = (f' value="{done}" max="{total}"', f"{done} of {total}: ") if total else ("", "")
    return f"<progress{value}></progress> {said}{html.escape(label)}"


@contextmanager
def _lines(first: str, begin: float) -> Iterator[Report]:
    """Prints the first line at once, and then one line whenever the last one is some time ago."""
    said = _Said(first, begin)
    thread = threading.Thread(target=said.repeat, daemon=True)
    thread.start()
    try:
        yield said.report
    finally:
        said.ended.set()
        thread.join()


class _Said:
    def __init__(self, first: str, begin: float) -> None:
        self.ended = threading.Event()
        self._begin = begin
        self._what = first
        self._say()

    def report(self, done: int, total: int, label: str) -> None:
        if label:
            self._what = f"{done} of {total}: {label}" if total > 1 else label

    def repeat(self) -> None:
        while not self.ended.wait(_EVERY_SECONDS):
            self._say()

    def _say(self) -> None:
        print(f"[{time.monotonic() - self._begin:3.0f} s] {self._what}", file=sys.stderr, flush=True)
