"""What a worker process shares with the process that will run the final program, and what it must not exceed.

Kernels are as fast as the cores they may use and the settings of their thread pool: a cost holds only where
these are alike.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import runtime

_SETTINGS = ("DNNL_", "GOMP_", "KMP_", "MALLOC_", "OMP_", "ONEDNN_", "OPENBLAS_", "TVM_")
"""Environment variables that begin so change how fast kernels run."""


def environment() -> dict[str, str]:
    """The environment of a worker: this process's, with numpy's own BLAS on one thread, as
    ``unity_collage.runtime`` loads its own: two pools would spin against each other.
    """
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


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
    """Processes started inside inherit all of :func:`usable_cores`."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, usable_cores())
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def limit_memory(nbytes: int) -> None:
    """Let this process grow by ``nbytes`` from now on: an allocation beyond that fails."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + nbytes
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))


def half_of_memory() -> int:
    """Bytes of half the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def described() -> dict[str, Any]:
    """What kernels find in this process."""
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_SETTINGS)}
    return {"threads": runtime.num_threads(), "cores": usable_cores(), "environment": settings}
