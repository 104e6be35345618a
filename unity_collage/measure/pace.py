"""How many kernels to ask a worker for at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from ..cost.model import Workload
from ..graph.shapes import nbytes_of
from .guard import output_bytes

_MOST, _MOST_BYTES = 16, 128 << 20
"""The most kernels of a request, and the most bytes of their operands and results: a worker has several copies."""

_SECONDS = 0.25
"""The assumed time for a kernel until one was measured."""


def in_questions(
    groups: Sequence[list[Workload]], seconds_left: Callable[[], float]
) -> Iterator[list[Workload]]:
    """The workloads of several groups at a time; each group computes one thing and stays together.

    A request is made as large as the remaining time allows, by the pace of the last request.
    """
    waiting, pace = list(groups), _SECONDS
    while waiting:
        most = max(1, int(min(_MOST, seconds_left() / pace)))
        asked = list(waiting.pop(0))
        while waiting and _fits(asked, waiting[0], most):
            asked += waiting.pop(0)
        begin = time.monotonic()
        yield asked
        pace = max(1e-3, (time.monotonic() - begin) / len(asked))


def _fits(asked: Sequence[Workload], more: Sequence[Workload], most: int) -> bool:
    together = [*asked, *more]
    return (
        more[0].evict_bytes == asked[0].evict_bytes
        and len(together) <= most
        and sum(map(_nbytes, together)) <= _MOST_BYTES
    )


def _nbytes(workload: Workload) -> int:
    return sum(map(nbytes_of, workload.func.params)) + output_bytes(workload.func)
