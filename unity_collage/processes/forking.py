"""Processes that are forks of a :mod:`.template`, which has loaded TVM and other modules before."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..machine.environment import environment, on_usable_cores, usable_cores

_PASSED_ON = frozenset({"PYTEST_CURRENT_TEST", "PYTHONPATH", "TMPDIR", "XDG_CACHE_HOME"})
"""Environment variables that may differ between a fork and the template: no library has read them before the fork."""

_ANSWER_BYTES = 32


class Forked:
    """A process that the template has forked, with the part of ``subprocess.Popen`` that is used here."""

    def __init__(self, template: _Template):
        self._template = template
        self._pid = 0
        self._pidfd: int | None = None

    def answered(self, pid: int, pidfd: int | None) -> None:
        """It is this process; without a descriptor there is none."""
        self._pid, self._pidfd = pid, pidfd

    def wait(self, timeout: float) -> int:
        """Wait for its end; raises TimeoutExpired after ``timeout`` seconds.

        A process that has not been forked yet is not waited for: it ends when its connection is closed. Only the
        template knows exit codes; the result is that of a process that was killed.
        """
        self._template.read_answers()
        if self._pidfd is not None and not select.select([self._pidfd], (), (), timeout)[0]:
            raise subprocess.TimeoutExpired("a fork", timeout)
        return -signal.SIGKILL

    def terminate(self) -> None:
        """Send SIGTERM, if it runs."""
        self._template.read_answers()
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def kill_group(self) -> None:
        """Kill it, and the processes of its group."""
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    def __del__(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)


class _Template:
    """A template that runs, what it has loaded, and the environment that it was started with."""

    def __init__(self, loaded: Sequence[str]) -> None:
        self._owner = os.getpid()
        self._loaded = tuple(loaded)
        self._environment = environment()
        self._asked: deque[Forked] = deque()
        self._is_ready = False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, on_usable_cores():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "unity_collage.processes.template", str(theirs.fileno()), *loaded],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )

    def fits(self, wanted: Mapping[str, str], loaded: Sequence[str]) -> bool:
        """Whether a process with the environment ``wanted`` and these modules may be a fork of it."""
        names = {*wanted, *self._environment} - _PASSED_ON
        return self._loaded == tuple(loaded) and all(
            wanted.get(name) == self._environment.get(name) for name in names
        )

    @property
    def is_ours(self) -> bool:
        """Whether this process has started it, rather than a process that this one was forked from."""
        return self._owner == os.getpid()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def fork(self, module: str, connection: int, output: int, wanted: Mapping[str, str]) -> Forked:
        """Ask for a fork that runs ``module``, without waiting for it; raises OSError."""
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        request = {"module": module, "environment": wanted, "cores": usable_cores(), "niceness": niceness}
        socket.send_fds(self._socket, [json.dumps(request).encode()], [connection, output])
        self._asked.append(Forked(self))
        return self._asked[-1]

    def await_imports(self, seconds: float) -> None:
        """Wait until it has imported its modules, or has ended, for at most ``seconds``."""
        with _LOCK:
            if not self._is_ready and select.select([self._socket], (), (), seconds)[0]:
                self._received()
                self._is_ready = True

    def read_answers(self) -> None:
        """Take what the template has answered so far."""
        with _LOCK:
            self.await_imports(0)
            while self._is_ready and self._asked and select.select([self._socket], (), (), 0)[0]:
                pid, files = self._received()
                self._asked.popleft().answered(int(pid or 0), files[0] if files else None)

    def _received(self) -> tuple[bytes, list[int]]:
        """The next packet with its descriptors; empty where the template has ended."""
        try:
            text, files, _, _ = socket.recv_fds(self._socket, _ANSWER_BYTES, 1)
        except OSError:
            return b"", []
        return text, files

    def close(self) -> None:
        """End it, and so all its forks."""
        if self.is_ours:
            self._process.kill()
            self._process.wait()
            self.read_answers()
        self._socket.close()


_LOCK = threading.RLock()
_templates: list[_Template] = []
"""The template of this process, if it has one."""
_failures: list[int] = []
"""The processes whose template has ended by itself: from then on each of their processes is started without a
template.
"""


def prepare(loaded: Sequence[str]) -> None:
    """Start the template that :func:`forked` would start, so that it imports ``loaded`` while this process goes on."""
    with _LOCK:
        if not _templates and _can_fork():
            _templates.append(_Template(loaded))


def await_template(seconds: float) -> None:
    """Wait until the template has imported its modules, for at most ``seconds``. Nothing should be measured before."""
    with _LOCK:
        if _templates and _templates[0].is_ours:
            _templates[0].await_imports(seconds)


def forked(
    module: str, connection: int, output: int, wanted: Mapping[str, str], loaded: Sequence[str]
) -> Forked | None:
    """A process that runs ``module`` under a supervisor, with TVM loaded already; None where that is not possible.

    It inherits two file descriptors: ``connection``, and ``output`` for what it prints. ``wanted``: its environment
    variables. ``loaded``: modules that are loaded too; a process has one template, with those of its first fork.
    """
    with _LOCK:
        if _templates and _templates[0].is_ours and _templates[0].has_ended:
            _failures.append(os.getpid())
        if os.getpid() in _failures or not _can_fork():
            return None
        if _templates and not _templates[0].is_ours:
            end_template()
        if not _templates:
            _templates.append(_Template(loaded))
        if not _templates[0].fits(wanted, loaded):
            return None
        try:
            return _templates[0].fork(module, connection, output, wanted)
        except OSError:  # for example if it has just ended
            return None


def _can_fork() -> bool:
    """Whether the system has descriptors of processes."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return hasattr(signal, "pidfd_send_signal")


@atexit.register
def end_template() -> None:
    """End the template of this process and its forks."""
    while _templates:
        _templates.pop().close()
