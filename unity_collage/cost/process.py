"""WorkerProcess: one worker process and the socket to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from typing import Any, cast

from .refusal import Refusal
from .storage.rows import Kind
from .surroundings import environment, on_usable_cores

Message = dict[str, Any]

_NEARLY = 0.8
"""A process that ended with so much of its memory in use has ended for want of more."""


class Gone(Exception):
    """The worker process has ended."""


class WorkerProcess:
    """Starts when it is made; messages are JSON lines both ways."""

    def __init__(self, command: tuple[str, ...], hello: Message):
        self._memory_bytes = int(hello["memory_bytes"])
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        self._socket, theirs = socket.socketpair()
        with theirs, on_usable_cores():
            self._process = subprocess.Popen(
                [sys.executable, *command, str(theirs.fileno())],
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
        self.send(hello)

    def send(self, message: Message) -> None:
        """Raises Gone when nobody is there to read it."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
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

    def why_gone(self) -> Refusal:
        """How the process has ended, as far as that can be seen from outside."""
        _, status, usage = os.wait4(self._process.pid, 0)
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL or usage.ru_maxrss * 1024 > _NEARLY * self._memory_bytes:
            return Refusal(f"the process ended with {usage.ru_maxrss >> 10} MiB in use", Kind.OUT_OF_MEMORY)
        if code < 0:
            return Refusal(f"it crashed the process: {signal.Signals(-code).name}", Kind.CRASH)
        return Refusal(f"it ended the process with exit code {code}", Kind.EXITED)

    def last_words(self) -> str:
        """The last line of what the process has written to standard error."""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._said.close()
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
