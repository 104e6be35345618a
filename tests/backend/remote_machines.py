"""A tracker and servers on loopback, for tests of other machines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

from unity_collage.measure.remote import messages

PATIENCE = 300.0
"""Seconds: how long anything may take on a busy machine."""

without_rpc = pytest.mark.skipif(
    messages.why_unavailable() is not None, reason=str(messages.why_unavailable())
)


class Machine(subprocess.Popen[bytes]):
    """A server in a session of its own."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        super().__init__(command, stderr=self._errors, start_new_session=True)

    def said(self) -> str:
        """What it has written to its standard error."""
        return os.pread(self._errors.fileno(), 1 << 20, 0).decode(errors="replace")


@contextmanager
def tracked() -> Iterator[str]:
    """The address of a tracker."""
    from tvm.rpc.tracker import Tracker

    running = Tracker("127.0.0.1", 19190, 19290, silent=True)
    yield f"127.0.0.1:{running.port}"
    running.terminate()


@contextmanager
def served(tracker: str, keys: Sequence[str]) -> Iterator[list[Machine]]:
    """A server for each key."""
    command = [sys.executable, "-m", "unity_collage.measure.remote.server", "--tracker", tracker]
    running = [
        Machine([*command, "--key", key, "--host", "127.0.0.1", "--port", str(19300 + 200 * number)])
        for number, key in enumerate(keys)
    ]
    yield running
    for server in running:
        if server.poll() is None:
            end(server)


def end(server: Machine) -> None:
    """As when the machine loses its power: no process on it can send a message."""
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def end_all(server: Machine) -> None:
    """End a server with the worker processes of its sessions, which have sessions of their own."""
    import psutil

    inside = psutil.Process(server.pid).children(recursive=True)
    end(server)
    for process in inside:
        with suppress(psutil.NoSuchProcess):
            process.kill()
