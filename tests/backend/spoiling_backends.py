"""Backends whose kernels compute the right numbers, and then change the process that measures other kernels next."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from planted_backends import misbehaving

from unity_collage.processes.supervisor import children
from unity_collage.testing.fake_backend import fake_backend

_DOWNWARD = 0x800000 if os.uname().machine == "aarch64" else 0x400


def _fork(daemon: bool) -> None:
    if pid := os.fork():
        if daemon:
            os.waitpid(pid, 0)
        return
    if daemon:
        os.setsid()
        if os.fork():
            os._exit(0)
    time.sleep(3600)


def _change_folder() -> None:
    os.chdir(tempfile.mkdtemp())
    Path.cwd().rmdir()


def _change_environment() -> None:
    os.environ["SPOILT"] = "1"
    os.environ.pop("PATH", None)


def _change_signals() -> None:
    ctypes.CDLL(None).signal(signal.SIGSEGV, 1)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _change_streams() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.close(2)


def _remove_modules() -> None:
    for name in ("json", "numpy", "tvm", "unity_collage"):
        sys.modules.pop(name, None)


def _stop_clocks() -> None:
    time.perf_counter = time.monotonic = lambda: 0.0


def _exit() -> None:
    raise SystemExit("the kernel exits")


SPOILERS: dict[str, tuple[Callable[[], Any], str]] = {
    "niceness": (lambda: os.nice(1), "the niceness"),
    "affinity": (lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}), "the CPU affinity"),
    "rounding": (lambda: ctypes.CDLL("libm.so.6").fesetround(_DOWNWARD), "the floating-point mode"),
    "folder": (_change_folder, "the working directory"),
    "environment": (_change_environment, "environment variables"),
    "signals": (_change_signals, "the signal mask, signal handlers"),
    "streams": (_change_streams, "the descriptors of standard input, output or error"),
    "modules": (_remove_modules, "imported modules"),
    "clocks": (_stop_clocks, "the clocks of Python"),
    "child": (lambda: _fork(daemon=False), "child processes"),
    "daemon": (lambda: _fork(daemon=True), "child processes"),
    "exit": (_exit, "the kernel exits"),
}
"""What a kernel does in every run, and what the reason of its refusal names."""


def _check() -> None:
    """Raise unless the process is as it was when it started."""
    supervisor = os.getppid()
    assert os.getpriority(os.PRIO_PROCESS, 0) == os.getpriority(os.PRIO_PROCESS, supervisor)
    assert os.sched_getaffinity(0) == os.sched_getaffinity(supervisor)
    assert 1.0 - 2.0**-60 == 1.0
    assert Path.cwd() == Path("/")
    assert "PATH" in os.environ and "SPOILT" not in os.environ
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert os.path.sameopenfile(1, 2) and not Path("/dev/fd/1").samefile(os.devnull)
    assert {"json", "numpy", "tvm", "unity_collage"} <= sys.modules.keys()
    assert time.perf_counter() > 0
    assert not children()


_ran: list[None] = []


def _change_folder_once() -> None:
    if not _ran:
        os.chdir("/tmp")
    _ran.append(None)


FAKES = SimpleNamespace(
    **{
        name: fake_backend(
            f"fake_{name}", "relax.nn.relu", codegen=misbehaving(lambda _inputs, _outputs, body=body: body())
        )
        for name, body in {
            **{name: body for name, (body, _) in SPOILERS.items()},
            "flood": lambda: os.write(1, bytes(1 << 24)),
            "once": _change_folder_once,
            "check": _check,
        }.items()
    }
)
"""Those of ``SPOILERS``, and three that get a cost: the last one checks the process in every run."""
