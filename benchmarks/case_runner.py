"""Runs cases of a suite in another process, which is started again when a case ends it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Generic, TypeVar

Found = TypeVar("Found")

Judge = Callable[..., AbstractContextManager[Callable[[str], Found]]]
"""Opens what judges a case by its name. It is a function of a module, so that another process can import it."""


class CaseRunner(Generic[Found]):
    """Judges cases in another process; ``crashed`` makes the verdict of a case that ends it, from name and reason."""

    def __init__(
        self, judge: Judge[Found], crashed: Callable[[str, str], Found], seconds: float, *args: Any
    ) -> None:
        """``seconds``: the limit for one case. ``args`` are those of ``judge``."""
        self._target = (judge, args)
        self._crashed = crashed
        self._seconds = seconds
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._pipe: Any = None

    def run(self, name: str) -> Found:
        """The verdict of a case."""
        if self._process is None:
            here, there = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(there, *self._target), daemon=False)
            self._process.start()
            there.close()
            self._pipe = here
        reason = f"it takes longer than {self._seconds:.0f} s"
        with suppress(EOFError, OSError):
            self._pipe.send(name)
            if self._pipe.poll(self._seconds):
                reason = "the process ended"
                return self._pipe.recv()
        self._process.kill()
        self._process.join()
        self._process = None
        return self._crashed(name, reason)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with suppress(OSError):
                self._pipe.send(None)
            self._process.join(10)
            self._process.kill()


def _serve(pipe: Any, judge: Judge[Any], args: tuple[Any, ...]) -> None:
    with judge(*args) as verdict_of:
        while (name := pipe.recv()) is not None:
            pipe.send(verdict_of(name))
