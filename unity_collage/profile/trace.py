"""A profile in the trace-event format of Chrome, which Perfetto and ``chrome://tracing`` show.

The format is described in "Trace Event Format" (Duca, Sinclair, 2016). Times are in microseconds.
"""

from __future__ import annotations

from typing import Any

from .result import Event, Profile

_PROCESS = 1
_RUNS = 0
"""The track of whole runs; the kernels of track n are on n + 1."""


def trace_of(profile: Profile, title: str) -> dict[str, Any]:
    """The last runs of a profile: one complete event for each kernel, and one for each run above them."""
    tracks = sorted({event.track for event in profile.events})
    names = {_RUNS: "runs", **{track + 1: _track_name(track) for track in tracks}}
    events = [
        _named("process_name", 0, title),
        *(_named("thread_name", tid, name) for tid, name in names.items()),
    ]
    events += [_named("thread_sort_index", tid, tid) for tid in names]
    runs = sorted({event.run for event in profile.events})
    events += [_run(profile, run) for run in runs]
    events += [_kernel(profile, event) for event in profile.events]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"model": title, "threads": profile.threads, "seconds": profile.seconds},
    }


def _track_name(track: int) -> str:
    return "kernels" if track == 0 else f"branch {track}"


def _named(what: str, tid: int, value: str | int) -> dict[str, Any]:
    key = "sort_index" if what.endswith("sort_index") else "name"
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": tid, "args": {key: value}}


def _run(profile: Profile, run: int) -> dict[str, Any]:
    own = [event for event in profile.events if event.run == run and event.track == 0]
    begin, end = own[0].start, own[-1].start + own[-1].seconds
    return _complete(f"run {run + 1}", "run", begin, end - begin, _RUNS, {})


def _kernel(profile: Profile, event: Event) -> dict[str, Any]:
    kernel, call = event.kernel, event.call
    known: dict[str, Any] = {
        "backend": kernel.backend,
        "operators": kernel.label,
        "layers": list(call.layers),
        "function": call.function,
        "shapes": list(call.shapes),
        "median_us": 1e6 * call.seconds,
        "cost_us": None if call.cost is None else 1e6 * call.cost,
        "flops": None if kernel.work is None else kernel.work.flops,
        "bytes": None if kernel.work is None else kernel.work.nbytes,
    }
    arguments = {name: value for name, value in known.items() if value not in (None, "")}
    return _complete(kernel.name, "kernel", event.start, event.seconds, event.track + 1, arguments)


def _complete(
    name: str, category: str, start: float, seconds: float, tid: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "ts": 1e6 * start,
        "dur": 1e6 * seconds,
        "pid": _PROCESS,
        "tid": tid,
        "args": arguments,
    }
