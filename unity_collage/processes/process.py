"""One child process that exchanges messages with its parent: JSON, a line each way, over a socket of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from ..machine.environment import environment, on_usable_cores
from ..scratch import Scratch
from .forking import Forked, forked

Message = dict[str, Any]

STARTING_SECONDS = 300.0
"""The limit until a process is ready: importing TVM takes seconds, and far longer on a busy machine."""

ENDING_SECONDS = 10.0
"""The limit for the end of a process that has closed its connection, and of everything that it has started."""

_MOST_BYTES = 1 << 26
"""The limit for one message of a process."""


class Gone(Exception):
    """The process has ended, or has closed its connection."""


class Silent(Exception):
    """The process has not sent, read or ended anything within a time limit.

    It is not a TimeoutError, which a signal handler of the user may raise while we wait.
    """


class Garbled(Exception):
    """Something came over the connection that is not a message."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process has ended, as its parent can see it."""

    code: int
    """The exit code; below 0 the signal that ended the process."""
    peak_bytes: int
    """The most memory that the process used."""
    last_words: str
    """The last line that the process printed."""

    @property
    def signal_name(self) -> str:
        """``SIGSEGV``; empty for a process that ended by itself."""
        return signal.Signals(-self.code).name if self.code < 0 else ""

    def __str__(self) -> str:
        how = f"crashed: {self.signal_name}" if self.code < 0 else f"ended with exit code {self.code}"
        return f"the process {how}: {self.last_words}".rstrip(": ")


class Process:
    """A Python process that runs ``module``. It starts at once, and ``hello`` is its first message.

    A :mod:`.supervisor` between it and this process ends everything that it has started. Its folder for temporary files
    is its own, and is removed. ``variables``: environment variables besides :func:`..machine.environment.environment`.
    ``loaded``: modules that it imports in any case. With some it is a fork of a :mod:`.template` that has them, and
    TVM, where that is possible.
    """

    def __init__(
        self,
        module: str,
        hello: Mapping[str, Any],
        variables: Mapping[str, str] | None = None,
        loaded: Sequence[str] = (),
    ):
        self._maker = os.getpid()
        self._scratch = Scratch("worker")
        self._report = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)  # of a message, as much is sent as there is room for
        wanted = {**environment(), **(variables or {}), "TMPDIR": self._scratch.name}
        with theirs:
            found = None
            if loaded:
                found = forked(module, theirs.fileno(), self._report.fileno(), wanted, loaded)
            self._supervisor = found or self._started(module, theirs.fileno(), wanted)
        self._received = b""
        with suppress(Gone):  # the first request finds out
            self.send(hello)

    def _started(self, module: str, connection: int, wanted: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """A new supervisor."""
        command = ["unity_collage.processes.supervisor", str(os.getpid()), str(connection), module]
        with on_usable_cores():
            return subprocess.Popen(
                [sys.executable, "-m", *command],
                pass_fds=[connection],
                stdin=subprocess.DEVNULL,
                stdout=self._report,
                stderr=self._report,
                env=wanted,
                # Python looks for packages in the working directory first: a checkout there has no native part.
                cwd="/",
                # Ctrl-C in a terminal reaches every process there; this one is ended by its parent.
                start_new_session=True,
            )

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; raises Gone when the process has ended, Silent when it does not read."""
        left = memoryview(json.dumps(dict(message)).encode() + b"\n")
        try:
            while left:
                self._await(select.POLLOUT, STARTING_SECONDS)
                left = left[self._socket.send(left) :]
        except ConnectionError as error:
            raise Gone from error

    def receive(self, timeout_seconds: float) -> Message:
        """The next message; raises Silent after ``timeout_seconds`` of silence, Gone at its end, or Garbled."""
        while b"\n" not in self._received:
            self._await(select.POLLIN, timeout_seconds)
            try:
                chunk = self._socket.recv(1 << 16)
            except ConnectionError as error:
                raise Gone from error
            if not chunk:
                raise Gone
            self._received += chunk
            if len(self._received) > _MOST_BYTES:
                raise Garbled
        line, self._received = self._received.split(b"\n", 1)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Garbled from error
        if not isinstance(message, dict):
            raise Garbled
        return cast(Message, message)

    @property
    def is_silent(self) -> bool:
        """Whether the process runs, as far as is known, and nothing that it has sent is left to receive."""
        return not self._received and not self._is_ready(select.POLLIN, 0.0)

    def _await(self, event: int, seconds: float) -> None:
        if not self._is_ready(event, seconds):
            raise Silent

    def _is_ready(self, event: int, seconds: float) -> bool:
        """Whether the socket can be read or written within this time; it does not block then."""
        waiting = select.poll()
        waiting.register(self._socket, event)
        return bool(waiting.poll(seconds * 1e3))

    def ending(self) -> Ending:
        """How the process has ended, after Gone; raises Silent where it has not."""
        try:
            code = self._supervisor.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Silent from error
        self._report.seek(0)
        lines = self._report.read().decode(errors="replace").strip().splitlines()
        try:
            return Ending(**json.loads(lines[-1]))
        except (IndexError, ValueError, TypeError):  # the supervisor itself was ended, or could not start
            return Ending(code, 0, lines[-1] if lines else "")

    def close(self) -> None:
        """End the process, and everything that it has started.

        A fork of the process that has made it has a copy of this object, and closes its own descriptors only.
        """
        self._socket.close()
        if os.getpid() == self._maker:
            self._end()
        self._report.close()
        self._scratch.cleanup()

    def _end(self) -> None:
        self._supervisor.terminate()
        try:
            self._supervisor.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:  # something has stopped it
            self._kill_group()
            with suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(ENDING_SECONDS)

    def _kill_group(self) -> None:
        """Kill the supervisor, and the processes of its group."""
        if isinstance(self._supervisor, Forked):
            self._supervisor.kill_group()
        else:
            os.killpg(self._supervisor.pid, signal.SIGKILL)
