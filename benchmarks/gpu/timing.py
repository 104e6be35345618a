"""Interleaved rounds: in each one, every competitor runs a number of times in a row between two CUDA events."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch  # pyright: ignore[reportMissingImports]

Run = Callable[[], Any]

_BESIDE = 1.25
"""By what factor a call may take longer than the events around it say, before its work must be on another stream."""


class Clock:
    """Seconds of calls, by the events of the device and by the host's clock."""

    def __init__(self, device: str) -> None:
        self._has_events = device != "cpu"

    def of(self, run: Run, calls: int) -> tuple[float, float]:
        """Seconds of one of ``calls`` calls in a row: by the events of torch's stream, and until the device is idle."""
        if not self._has_events:
            seconds = self._host(run, calls)
            return seconds, seconds
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start = time.perf_counter()
        begun.record()
        for _ in range(calls):
            run()
        ended.record()
        torch.cuda.synchronize()
        host = (time.perf_counter() - start) / calls
        return begun.elapsed_time(ended) / 1e3 / calls, host

    def _host(self, run: Run, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) / calls


def in_turns(runs: Mapping[str, Run], calls: int, rounds: int, device: str) -> dict[str, dict[str, Any]]:
    """The samples of each competitor, seconds a call: one sample of ``calls`` calls in a row in each round."""
    clock = Clock(device)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for turn in range(rounds):
        names = list(runs)
        first = turn % len(names) if names else 0
        for name in (*names[first:], *names[:first]):
            samples[name].append(clock.of(runs[name], calls))
    return {name: summary(found) | {"calls": calls} for name, found in samples.items()}


def summary(samples: list[tuple[float, float]]) -> dict[str, Any]:
    """The medians of samples of (events, host).

    A program that works on a stream of its own is not between the events, so the host's clock is right then.
    """
    events, host = ([sample[i] for sample in samples] for i in (0, 1))
    by_events, by_host = statistics.median(events), statistics.median(host)
    is_beside = by_host > _BESIDE * by_events
    return {
        "seconds": by_host if is_beside else by_events,
        "measured_by": "host" if is_beside else "events",
        "event_seconds": events,
        "host_seconds": host,
    }
