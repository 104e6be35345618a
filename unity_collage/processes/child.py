"""A child process that serves requests, and is started again after it has ended.

Messages are JSON, a line each way, over a socket of the process's own. :class:`.process.Process` is one process,
:class:`Child` sends it requests, and :func:`.serving.serve` is the other end. A process sends ``{"ready": true}``
when it has imported what it needs. While it works on a request it may send ``{"stage": ..., "key": ...}``. If it then
ends or falls silent, the parent knows what it was busy with. The parent logs the errors that the process logs
(:mod:`.log`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from .log import logged_again
from .process import ENDING_SECONDS, STARTING_SECONDS, Ending, Garbled, Gone, Message, Process, Silent

LOGGER = logging.getLogger(__name__)

Reply = Message
"""The reply of a child; it has a ``reason`` if the child could not do what was requested."""

STARTING, ASKED = "starting", "reading the question"
"""Stages before the process sends one."""


class NoAnswer(Exception):
    """A child has ended, or was ended because it was silent for too long or sent what is not a message."""

    def __init__(self, reason: str, stage: str, ending: Ending | None = None, is_silent: bool = False):
        super().__init__(reason)
        self.ending = ending
        """How the child has ended; None: it was ended."""
        self.is_silent = is_silent
        """Whether it was silent for too long."""
        self.stage = stage
        """What the child was busy with."""


class Child:
    """Sends requests to a process that runs ``module``.

    It starts with the first request, and again after it has ended.

    Use as a context manager.
    """

    def __init__(
        self,
        module: str,
        hello: Mapping[str, Any],
        timeout_seconds: float,
        variables: Mapping[str, str] | None = None,
        loaded: Sequence[str] = (),
    ):
        """``variables`` and ``loaded``: as of :class:`.process.Process`."""
        self._module = module
        self._variables = variables
        self._loaded = loaded
        self._hello = dict(hello)
        self._timeout_seconds = timeout_seconds
        self._process: Process | None = None
        self._is_ready = False
        self.starts = 0
        """How many processes have been started: what one has loaded, the next one has not."""
        self.stage = STARTING
        """What the process is or was busy with."""
        self.suspect: str | None = None
        """The key that the stage is about, if there is one."""
        self.was_silent = False
        """Whether the last question was not answered within the limit."""

    def start(self) -> None:
        """Start the process if it does not run, without waiting until it is ready.

        One that has ended, or has sent something, since its last reply is replaced.
        """
        if self._process is not None and self._is_ready and not self._process.is_silent:
            LOGGER.info("%s has ended or sent something unasked, and is started again", self._module)
            self.close()
        if self._process is None:
            self._process = Process(self._module, self._hello, self._variables, self._loaded)
            self._is_ready = False
            self.starts += 1

    def ask(self, request: Mapping[str, Any]) -> Reply:
        """The child's reply. When it ends, or is silent for longer than the limit, the reply has a ``reason``."""
        self.was_silent = False
        try:
            return next(self.messages(request))
        except NoAnswer as error:
            self.was_silent = error.is_silent
            return {"reason": str(error)}

    def messages(self, request: Mapping[str, Any]) -> Iterator[Message]:
        """The child's messages that answer a request, without stages; raises NoAnswer.

        The caller knows which message is the last one, and stops there. If it stops before, it closes the process.
        """
        self.stage, self.suspect = STARTING, None
        seconds = STARTING_SECONDS
        try:
            process = self._started()
            if not self._is_ready:
                process.receive(seconds)
                self._is_ready = True
            self.stage, seconds = ASKED, self._timeout_seconds
            process.send(request)
            while True:
                message = process.receive(seconds)
                if "stage" in message:
                    self.stage, self.suspect = message["stage"], message.get("key")
                elif not logged_again(message):
                    yield message
        except Silent:
            failure = self._silent(seconds)
        except Gone:
            failure = self._gone()
        except Garbled:
            failure = NoAnswer("something wrote to the connection of the process", self.stage)
        except GeneratorExit:  # the caller has read the last message, or closes the process
            raise
        except (
            BaseException
        ):  # Ctrl-C: the rest of this reply must not be read as the reply to the next request
            self.close()
            raise
        self.close()
        LOGGER.info("%s, while %s: %s", self._module, self.stage, failure)
        raise failure

    def _started(self) -> Process:
        """The process, which :meth:`start` has replaced if it has ended."""
        self.start()
        assert self._process is not None
        return self._process

    def _gone(self) -> NoAnswer:
        assert self._process is not None
        try:
            ending = self._process.ending()
        except Silent:  # it has closed its connection, and still runs
            return self._silent(ENDING_SECONDS)
        return NoAnswer(str(ending), self.stage, ending)

    def _silent(self, seconds: float) -> NoAnswer:
        return NoAnswer(f"no answer within {seconds:g} s", self.stage, is_silent=True)

    @property
    def is_running(self) -> bool:
        """Whether there is a process that is not known to have ended."""
        return self._process is not None

    def close(self) -> None:
        """End the process; the next question starts another."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
