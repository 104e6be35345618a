"""Workers: several processes that build and check kernels for one device, of which one at a time uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from ...cost.model import Workload
from ...machine.environment import usable_cores
from ...plan.costs import Cost
from ..client import WorkerClient
from ..questions import Client
from ..session import Session


def most() -> int:
    """The most workers: the compilers of each keep a core busy."""
    return max(1, min(8, len(usable_cores()) // 2))


class Workers(Session):
    """The workers of one CudaCost, started as they are needed."""

    def __init__(self) -> None:
        super().__init__()
        self._idle: list[WorkerClient] = []
        self._all: list[WorkerClient] = []

    def first(self, make: Callable[[], WorkerClient]) -> WorkerClient:
        """The worker for single requests."""
        if not self._all:
            self._idle.append(self._added(make))
        return self._all[0]

    def spread(
        self,
        make: Callable[[], WorkerClient],
        groups: Sequence[list[Workload]],
        work: Callable[[Client, list[Workload]], dict[str, Cost]],
    ) -> Iterator[dict[str, Cost]]:
        """The result of ``work`` for each group, in order; each worker has one group at a time."""

        def with_worker(group: list[Workload]) -> dict[str, Cost]:
            try:
                client = self._idle.pop()
            except IndexError:
                client = self._added(make)
            try:
                return work(client, group)
            finally:
                self._idle.append(client)

        if len(groups) < 2:
            yield from map(with_worker, groups)
            return
        with ThreadPoolExecutor(most()) as threads:
            running = [threads.submit(with_worker, group) for group in groups]
            try:
                for answer in running:
                    yield answer.result()
            finally:
                for answer in running:
                    answer.cancel()

    def close(self) -> None:
        """End the workers."""
        for client in self._all:
            client.close()
        self._all, self._idle = [], []

    def _added(self, make: Callable[[], WorkerClient]) -> WorkerClient:
        client = make()
        self._all.append(client)
        return client
