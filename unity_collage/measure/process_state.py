"""ProcessState: what a backend or a kernel can change of the worker process, and how it is put back.

Kernels run one after the other in one process. A kernel that changes the rounding mode, the priority or the working
directory would change the costs, or the results, of all later kernels.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .. import runtime
from ..database.rows import FailureKind
from ..processes.supervisor import adopt_orphans, children, kill
from .refusal import Refusal, Refused

T = TypeVar("T")


_SA_RESTORER = 0x04000000
"""A flag that the C library sets with every action, so an action that was never set lacks it until it is restored."""


class _Action(ctypes.Structure):
    """``struct sigaction``. The C library leaves undefined what is behind the first word of the mask."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )

    @property
    def content(self) -> tuple[int, ...]:
        return self.handler or 0, self.mask[0], self.flags & ~_SA_RESTORER


class Spoilt(Exception):
    """No other kernel can be measured in this process; the text says why."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One thing that can be changed."""

    name: str
    restore: Callable[[], bool]
    """Restore it, and return whether it had been changed. Raises OSError if it cannot be restored."""


class ProcessState:
    """The state of this process when the object is made. Make it in the main thread, where the kernels will run."""

    def __init__(self) -> None:
        adopt_orphans()
        mode = runtime.float_mode()
        runtime.restore_float_mode(mode)  # starts the threads of the pool: they are part of the state
        priority = os.PRIO_PROCESS
        self._parts = (
            _of_threads(
                "the niceness",
                lambda thread: os.getpriority(priority, thread),
                lambda thread, nice: os.setpriority(priority, thread, nice),
            ),
            _of_threads("the CPU affinity", os.sched_getaffinity, os.sched_setaffinity),
            _Part("the floating-point mode", lambda: runtime.restore_float_mode(mode)),
            _working_directory(),
            _mapping("environment variables", os.environ, keeps_new=False),
            _signal_mask(),
            _signal_handlers(),
            _streams(),
            _mapping("imported modules", sys.modules, keeps_new=True),
            _mapping("the clocks of Python", time.__dict__, keeps_new=True),
        )
        self._helpers = set(children())
        """Processes that backends have started while they built kernels."""

    def after_building(self) -> None:
        """Restore everything; raises Spoilt if that is impossible."""
        self._restored()
        self._helpers = set(children())

    def settled(self, run: Callable[[], T]) -> T:
        """Call ``run``, which runs a kernel, and return its result.

        Raises Refused if every run changes the state, or Spoilt.

        The first kernel of a library may change something once. The change is undone, and the kernel runs again.
        """
        changed: list[str] = []
        for _ in range(2):
            try:
                result = run()
            finally:
                changed = self._restored_after_run()
            if not changed:
                return result
        reason = f"every run changes the process and does not change it back: {', '.join(changed)}"
        raise Refused(Refusal(reason, FailureKind.RUN_ERROR))

    def check_timed(self) -> None:
        """Raise Spoilt if the kernels that were just timed have changed the state: their costs may be wrong."""
        changed = self._restored_after_run()
        if changed:
            raise Spoilt(f"the process was changed while it was timed: {', '.join(changed)}")

    def _restored_after_run(self) -> list[str]:
        left = end_children(self._helpers)
        return [*(["child processes"] if left else []), *self._restored()]

    def _restored(self) -> list[str]:
        """Restore everything; returns the names of what had been changed."""
        return [part.name for part in self._parts if _is_restored(part)]


def end_children(spared: set[int]) -> bool:
    """End the children of this process apart from ``spared``, and all that they leave; whether there were any."""
    found = False
    while left := [pid for pid in children() if pid not in spared]:
        found = True
        kill(left)
        for pid in left:
            with suppress(ChildProcessError):  # other code waits for it
                os.waitpid(pid, 0)
    return found


def _is_restored(part: _Part) -> bool:
    try:
        return part.restore()
    except OSError as error:
        raise Spoilt(f"{part.name} cannot be changed back: {error.strerror}") from error


def _of_threads(name: str, get: Callable[[int], Any], put: Callable[[int, Any], None]) -> _Part:
    """Something that each thread has. Threads that start later are not part of the state: their owner may set them."""
    before = {
        thread: get(thread) for thread in (int(task.name) for task in Path("/proc/self/task").iterdir())
    }

    def restore() -> bool:
        changed = False
        for thread, value in before.items():
            with suppress(ProcessLookupError):  # the thread has ended since
                if get(thread) != value:
                    changed = True
                    put(thread, value)
        return changed

    return _Part(name, restore)


def _mapping(name: str, mapping: MutableMapping[str, Any], keeps_new: bool) -> _Part:
    """The values of a mapping. ``keeps_new``: whether entries that were added stay."""
    before = dict(mapping)

    def restore() -> bool:
        changed = {key: value for key, value in before.items() if mapping.get(key) is not value}
        changed = {key: value for key, value in changed.items() if mapping.get(key) != value}
        added = [] if keeps_new else [key for key in mapping if key not in before]
        mapping.update(changed)
        for key in added:
            del mapping[key]
        return bool(changed or added)

    return _Part(name, restore)


def _working_directory() -> _Part:
    before = Path.cwd()

    def restore() -> bool:
        with suppress(FileNotFoundError):  # it was removed
            if Path.cwd() == before:
                return False
        os.chdir(before)
        return True

    return _Part("the working directory", restore)


def _signal_mask() -> _Part:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def restore() -> bool:
        return signal.pthread_sigmask(signal.SIG_SETMASK, before) != before

    return _Part("the signal mask", restore)


def _signal_handlers() -> _Part:
    """The handlers as the system has them: those of Python, those of libraries, and none."""
    sigaction = ctypes.CDLL(None).sigaction

    def action(number: int) -> _Action:
        found = _Action()
        sigaction(number, None, ctypes.byref(found))
        return found

    before = {number: action(number) for number in signal.valid_signals()}

    def restore() -> bool:
        changed = [number for number, known in before.items() if action(number).content != known.content]
        for number in changed:
            sigaction(number, ctypes.byref(before[number]), None)
        return bool(changed)

    return _Part("signal handlers", restore)


def _streams() -> _Part:
    before = {stream: os.dup(stream) for stream in (0, 1, 2)}

    def restore() -> bool:
        changed = [stream for stream, known in before.items() if not _is_same_file(stream, known)]
        for stream in changed:
            os.dup2(before[stream], stream)
        return bool(changed)

    return _Part("the descriptors of standard input, output or error", restore)


def _is_same_file(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # one is closed
        return False
