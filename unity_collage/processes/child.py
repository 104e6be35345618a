"""Child processes that answer messages: JSON, a line each way, over a socket of their own.

:class:`Process` is one process. :class:`Child` asks one, and starts another after it has ended. :func:`serve` is the
other end. A process says ``{"ready": true}`` when it has imported what it needs; while it works on a question it may
say ``{"stage": ..., "key": ...}``, so that the parent knows what it was busy with if it ends or falls silent. Errors
that it logs are logged by the parent (:mod:`.log`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

from ..machine.environment import environment, on_usable_cores
from .log import logged_again, send_errors

Message = dict[str, Any]

Reply = Message
"""What a child answers; ``reason`` is there when it could not do what was asked."""

STARTING_SECONDS = 300.0
"""Until a process is ready: importing TVM takes seconds, on a busy machine many."""

STARTING, ASKED = "starting", "reading the question"
"""Stages before the process says one of its own."""


class Gone(Exception):
    """The process has ended."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process has ended, as far as that can be seen from outside."""

    code: int
    """Its exit code; below 0 the signal that has ended it."""
    peak_bytes: int
    """The most memory that it had in use."""
    last_words: str
    """The last line of what it has written to standard error."""

    @property
    def signal_name(self) -> str:
        """``SIGSEGV``; empty for a process that has ended by itself."""
        return signal.Signals(-self.code).name if self.code < 0 else ""

    def __str__(self) -> str:
        how = f"crashed: {self.signal_name}" if self.code < 0 else f"ended with exit code {self.code}"
        return f"the process {how}: {self.last_words}".rstrip(": ")


class NoAnswer(Exception):
    """A child has ended, or was silent for too long and was ended."""

    def __init__(self, ending: Ending | None, stage: str, seconds: float):
        super().__init__(f"no answer within {seconds:g} s" if ending is None else str(ending))
        self.ending = ending
        """None: it was silent."""
        self.stage = stage
        self.seconds = seconds
        """How long the parent had waited at most."""


class Process:
    """A Python process that runs ``module``, started when this is made. It gets ``hello`` first."""

    def __init__(self, module: str, hello: Mapping[str, Any]):
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        self._socket, theirs = socket.socketpair()
        with theirs, on_usable_cores():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "unity_collage.processes.launcher", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=self._said,
                env=environment(),
                # Python looks for packages in the working directory first: a checkout there has no native part.
                cwd="/",
                # Ctrl-C in a terminal reaches every process there; this one is for us to end.
                start_new_session=True,
            )
        self._received = b""
        with suppress(Gone):  # then the first question is told
            self.send(hello)

    def send(self, message: Mapping[str, Any]) -> None:
        """Raises Gone when the process has ended, TimeoutError when it does not read."""
        try:
            self._socket.settimeout(STARTING_SECONDS)
            self._socket.sendall(json.dumps(dict(message)).encode() + b"\n")
        except ConnectionError as error:
            raise Gone from error

    def receive(self, timeout_seconds: float) -> Message:
        """The next message; raises TimeoutError after a silence of so long, Gone at the end."""
        self._socket.settimeout(timeout_seconds)
        while b"\n" not in self._received:
            try:
                chunk = self._socket.recv(1 << 16)
            except ConnectionError as error:
                raise Gone from error
            if not chunk:
                raise Gone
            self._received += chunk
        line, self._received = self._received.split(b"\n", 1)
        return cast(Message, json.loads(line))

    def ending(self) -> Ending:
        """How the process has ended; waits for it, so ask after Gone. Call it once."""
        _, status, usage = os.wait4(self._process.pid, 0)
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return Ending(code, usage.ru_maxrss * 1024, lines[-1] if lines else "")

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._said.close()
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()


class Child:
    """Questions to a process that runs ``module``, started when first asked, and again after it has ended.

    Use as a context manager.
    """

    def __init__(self, module: str, hello: Mapping[str, Any], timeout_seconds: float):
        self._module = module
        self._hello = dict(hello)
        self._timeout_seconds = timeout_seconds
        self._process: Process | None = None
        self._is_ready = False
        self.stage = STARTING
        """What the process is or was busy with."""
        self.suspect: str | None = None
        """The key that belongs to the stage, if there is one."""

    def start(self) -> None:
        """Start the process if there is none, without waiting until it is ready."""
        if self._process is None:
            self._process, self._is_ready = Process(self._module, self._hello), False

    def ask(self, request: Mapping[str, Any]) -> Reply:
        """The child's reply; its end, or a silence longer than the limit, is a reply with a ``reason``."""
        try:
            return next(self.messages(request))
        except NoAnswer as error:
            return {"reason": str(error)}

    def messages(self, request: Mapping[str, Any]) -> Iterator[Message]:
        """What the child says to a request, stages aside, for as long as the caller goes on; raises NoAnswer.

        The caller knows which message is the last one.
        """
        self.stage, self.suspect = STARTING, None
        seconds = STARTING_SECONDS
        try:
            self.start()
            assert self._process is not None
            if not self._is_ready:
                self._process.receive(seconds)
                self._is_ready = True
            self.stage, seconds = ASKED, self._timeout_seconds
            self._process.send(request)
            while True:
                message = self._process.receive(seconds)
                if "stage" in message:
                    self.stage, self.suspect = message["stage"], message.get("key")
                elif not logged_again(message):
                    yield message
        except TimeoutError:
            failure = NoAnswer(None, self.stage, seconds)
        except Gone:
            assert self._process is not None
            failure = NoAnswer(self._process.ending(), self.stage, seconds)
        self.close()
        raise failure

    @property
    def is_running(self) -> bool:
        """Whether there is a process that has not ended as far as is known."""
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


Say = Callable[[Message], None]


def serve(make: Callable[[dict[str, Any]], Callable[[dict[str, Any]], Reply]]) -> None:
    """The child's side: ``make`` gets the hello and returns what answers requests; until the other end closes.

    An exception is an answer with its last line as the reason: a foreign compiler or kernel has failed.
    """

    def ready(hello: dict[str, Any], _connection: int, say: Say) -> Callable[[Message], None]:
        answers: list[Callable[[Message], Reply]] = []

        def answer(request: Message) -> None:
            try:
                if not answers:
                    answers.append(make(hello))
                reply = answers[0](request)
            except Exception as error:
                reply = {"reason": f"{type(error).__name__}: {last_line(error)}"}
            say(reply)

        return answer

    serve_messages(ready)


def serve_messages(ready: Callable[[dict[str, Any], int, Say], Callable[[Message], None]]) -> None:
    """The child's side where an answer is several messages.

    ``ready`` gets the hello, the file descriptor of the connection and what says a message; it returns what answers a
    request by saying messages.
    """
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rb") as requests:

        def say(message: Message) -> None:
            connection.sendall(json.dumps(message).encode() + b"\n")

        with suppress(BrokenPipeError):
            answer = ready(json.loads(requests.readline()), connection.fileno(), say)
            say({"ready": True})
            send_errors(say)
            for line in requests:
                answer(json.loads(line))


def last_line(error: BaseException) -> str:
    """The last line of what an error says: compilers put the cause there."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else ""
