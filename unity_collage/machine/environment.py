"""The process environment of a worker: environment variables, usable cores, and the limit of its memory.

The speed of a kernel depends on the cores it may use and the settings of its thread pool. So a worker has those of the
process that will run the program.
"""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import runtime
from ..defaults import MOST_THREADS
from ..errors import CollageError
from ..runtime.threads import cpu_quota

_SETTINGS = ("DNNL_", "GOMP_", "KMP_", "MALLOC_", "OMP_", "ONEDNN_", "OPENBLAS_", "TVM_")
"""Prefixes of environment variables that change how fast kernels run."""


def environment() -> dict[str, str]:
    """The environment of a worker: that of this process, with numpy's own BLAS on one thread.

    Otherwise two thread pools would spin against each other. A worker runs in another folder, and must import this
    package from the same place as this process. That may be a relative folder of ``PYTHONPATH``, or the folder of a
    script.
    """
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(_folders_of_modules())}


def _folders_of_modules() -> list[str]:
    """The folders of ``PYTHONPATH``, and the one that this package was found in, unless it is installed."""
    given = [
        str(Path(folder).absolute())
        for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if folder
    ]
    own = str(Path(__file__).absolute().parents[2])
    is_installed = Path(own).name in ("site-packages", "dist-packages")
    return given if is_installed or own in given else [*given, own]


def use_threads(count: int | None) -> None:
    """Let kernels of this process use ``count`` threads from their next call on; None changes nothing.

    Raises CollageError where it is not a number from one to ``MOST_THREADS``.
    """
    if count is None:
        return
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise CollageError(f"threads is {count!r}, which is not a number of at least 1")
    if count > MOST_THREADS:
        raise CollageError(f"threads is {count}, more than a program can use: take at most {MOST_THREADS}")
    runtime.set_num_threads(count)


def why_too_many_threads() -> str | None:
    """Why kernels cannot be measured with the threads of this process, or None.

    Threads that share a processor take turns on it, and a control group suspends a process that has used up its quota.
    Costs that are measured then do not hold. Two hardware threads of a core count as two processors.
    """
    count, quota = runtime.num_threads(), cpu_quota()
    most = min(len(usable_cores()), sys.maxsize if quota is None else math.ceil(quota))
    if count <= most:
        return None
    limit = "the quota of its control group" if most < len(usable_cores()) else "the cores that it may use"
    return (
        f"kernels cannot be measured with {count} threads here: for this process {most} is the most, by {limit}; "
        "take fewer threads, or choose kernels by rule (--no-measure, measure=False)"
    )


def usable_cores() -> list[int]:
    """The cores that any thread of this process may use.

    A thread pool may have bound the calling thread to one core, and a child process inherits that.
    """
    tasks = Path("/proc/self/task")
    threads = [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [0]
    cores: set[int] = set()
    for thread in threads:
        try:
            cores |= os.sched_getaffinity(thread)
        except ProcessLookupError:  # the thread has ended since
            continue
    return sorted(cores)


@contextmanager
def on_usable_cores() -> Iterator[None]:
    """Let processes that are started inside use all of :func:`usable_cores`."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, usable_cores())
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def limit_memory(nbytes: int) -> None:
    """Let this process grow by at most ``nbytes`` from now on; an allocation beyond that fails."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + nbytes
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))


def half_of_memory() -> int:
    """Half of the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def described() -> dict[str, Any]:
    """The threads, cores and settings that kernels find in this process."""
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_SETTINGS)}
    return {"threads": runtime.num_threads(), "cores": usable_cores(), "environment": settings}
