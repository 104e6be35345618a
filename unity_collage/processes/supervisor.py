"""Runs a module in a process of its own, and ends whatever that process leaves behind.

``python -m unity_collage.processes.supervisor PARENT CONNECTION MODULE`` is what :class:`.process.Process` starts. This
process is the supervisor: it forks before anything large is imported, and the fork runs MODULE with the argument
CONNECTION. The supervisor ends the fork and all its descendants, those with a session of their own included, when

* the fork has ended: then no descendant holds the connection open, and the parent sees the end,
* it gets SIGTERM, or
* the process PARENT, which started it, has ended in whatever way.

It reads the output of the fork and its descendants, and keeps the end of it in memory. The last line of its own
standard error has the fields of :class:`.process.Ending`.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_READ_BYTES, _KEPT_BYTES = 1 << 20, 1 << 14
"""How much of the output is read at once, and how much of its end is kept."""

_CHECK_SECONDS = 1.0
"""How often, in seconds, a system without pidfd_open checks whether the parent still runs."""


def adopt_orphans() -> None:
    """Let descendants become children of this process when their parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with(parent: int) -> None:
    """Let this process be killed when the thread that has started it ends; ``parent`` is the process of that thread."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def children() -> list[int]:
    """The children of this process, of all its threads; zombies are among them."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended since
            found += map(int, (task / "children").read_text().split())
    return found


def kill(pids: Sequence[int]) -> None:
    """Kill these children. Wait for their ends afterwards: with :func:`adopt_orphans` their children become ours."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class _Supervisor:
    """The supervisor's side of the fork ``pid``; its output comes from the descriptor ``output``."""

    def __init__(self, pid: int, parent: int, output: int, signals: int):
        self._pid, self._parent = pid, parent
        self._output, self._signals = output, signals
        self._said = b""
        self._ending: tuple[int, int] | None = None
        """The exit code, and the most memory in bytes."""

    def run(self) -> dict[str, Any]:
        """Wait for a reason to end, and end all processes; the result describes how the fork has ended."""
        watched = {self._output, self._signals}
        timeout: float | None = _CHECK_SECONDS
        with suppress(OSError):
            watched.add(os.pidfd_open(self._parent))
            timeout = None
        while self._ending is None and os.getppid() == self._parent:
            ready, _, _ = select.select(watched, (), (), timeout)
            if self._output in ready and not self._read():
                watched.remove(self._output)
            if self._signals in ready:
                if signal.SIGTERM in os.read(self._signals, _READ_BYTES):
                    break
                self._reap()
        while left := children():
            kill(left)
            for pid in left:
                self._wait(pid, 0)
        os.set_blocking(self._output, False)
        with suppress(BlockingIOError):
            while self._read():
                pass
        code, peak_bytes = self._ending or (-signal.SIGKILL, 0)
        lines = self._said.decode(errors="replace").strip().splitlines()
        return {"code": code, "peak_bytes": peak_bytes, "last_words": lines[-1] if lines else ""}

    def _read(self) -> bool:
        """Read some of the output; whether there is more to come."""
        chunk = os.read(self._output, _READ_BYTES)
        self._said = (self._said + chunk)[-_KEPT_BYTES:]
        return bool(chunk)

    def _reap(self) -> None:
        """Wait for all children that have ended."""
        with suppress(ChildProcessError):
            while self._wait(-1, os.WNOHANG):
                pass

    def _wait(self, pid: int, options: int) -> int:
        """Wait for a child, and note the ending of the fork; the result is the child that has ended, or 0."""
        ended, status, usage = os.wait4(pid, options)
        if ended == self._pid:
            self._ending = os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
        return ended


def _become_worker(supervisor: int, output: int, connection: str, module: str) -> None:
    """Run ``module`` in the fork."""
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    end_with(supervisor)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.set_inheritable(int(connection), False)
    from .launcher import run  # loads the FFI, which the supervisor does not need

    run([module, connection])


def main(parent: int, connection: str, module: str) -> None:
    """Fork: the result is None in the fork, when ``module`` has run; the supervisor does not return."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    reading, writing = os.pipe()
    signals, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    adopt_orphans()
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for unused in (reading, signals, wakeup):
            os.close(unused)
        _become_worker(supervisor, writing, connection, module)
        return
    os.close(writing)
    os.close(int(connection))
    ending = _Supervisor(pid, parent, reading, signals).run()
    os.write(2, b"\n" + json.dumps(ending).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
