"""Kernels of TVM that are compiled before any of them is timed, on all cores.

LLVM takes most of the time of a request for many kernels, and uses only one core for each. While kernels are timed
nothing is compiled, since that would disturb them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from tvm.target import Target

from ..lowering.function_objects import FunctionObject, function_object
from ..machine.environment import usable_cores
from ..target import is_cuda
from .kernels import LoweredKernel


@dataclass
class CompiledAhead:
    """Compiles kernels in threads. TVM's compiler runs without the lock of Python."""

    _threads: ThreadPoolExecutor
    _begun: dict[str, tuple[LoweredKernel, Future[FunctionObject | None]]] = field(
        default_factory=dict[str, tuple[LoweredKernel, "Future[FunctionObject | None]"]]
    )

    def begin(self, key: str, lower: Callable[[], LoweredKernel]) -> None:
        """Begin to compile what ``lower`` returns.

        Errors are ignored here: the caller lowers and compiles the kernel again, and gets them then.
        """
        with suppress(Exception):
            lowered = lower()
            if not is_cuda(lowered.target):
                self._begun[key] = lowered, self._threads.submit(_compiled, lowered, lowered.target)

    def finished(self) -> Iterator[tuple[str, LoweredKernel]]:
        """The kernels that could be compiled, by key, as their turn comes."""
        for key, (lowered, running) in self._begun.items():
            error = running.exception()
            yield key, lowered if error is not None else replace(lowered, compiled=running.result())


@contextmanager
def compiling_ahead() -> Iterator[CompiledAhead]:
    """Threads for all usable cores; they end with the ``with`` block, and begin nothing more then."""
    cores = usable_cores()
    # The thread pool may have bound the calling thread to one core, and new threads inherit that.
    with ThreadPoolExecutor(len(cores), initializer=os.sched_setaffinity, initargs=(0, cores)) as threads:
        try:
            yield CompiledAhead(threads)
        finally:
            threads.shutdown(cancel_futures=True)


def _compiled(lowered: LoweredKernel, target: Target) -> FunctionObject | None:
    return function_object(lowered.func, target)
