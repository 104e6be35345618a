"""A progress bar on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..cost.model import Progress as Report


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A function that shows what is being measured, if standard error is a terminal."""
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
               TextColumn("{task.description}"))  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None, visible=False)

        def report(done: int, total: int, label: str) -> None:
            progress.update(task, completed=done, total=total or None, description=label, visible=bool(label))

        yield report
