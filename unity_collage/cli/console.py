"""Where commands print their results: standard output."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console


class Output(Console):
    """Standard output. Where its reader has gone, as in ``| head``, printing raises BrokenPipeError."""

    def on_broken_pipe(self) -> NoReturn:
        """Called by rich, which would end the process with the code 1."""
        raise BrokenPipeError

    def say(self, text: str) -> None:
        """Print a line as it is: it is not wrapped, and brackets in it are not markup."""
        self.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)
