"""A validator of the parts of Chrome's trace-event format that the package writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


def why_not_trace(trace: Any) -> str | None:
    """Why ``trace``, parsed JSON, is not a trace of complete events and metadata that viewers show; or None."""
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return "there is no list traceEvents"
    if trace.get("displayTimeUnit", "ms") not in ("ms", "ns"):
        return "displayTimeUnit is neither ms nor ns"
    reasons = [
        f"event {n}: {reason}" for n, event in enumerate(trace["traceEvents"]) for reason in _faults(event)
    ]
    complete = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    return next(iter([*reasons, *_crossings(complete), *_unnamed(trace["traceEvents"], complete)]), None)


def _faults(event: Any) -> Iterator[str]:
    for key, kind in {"ph": str, "name": str, "pid": int, "tid": int, "args": dict}.items():
        if not isinstance(event.get(key), kind):
            yield f"{key} is {event.get(key)!r}"
    if event.get("ph") == "X":
        for key in ("ts", "dur"):
            if not isinstance(event.get(key), int | float) or not 0 <= event[key] < float("inf"):
                yield f"{key} is {event.get(key)!r}"
    elif event.get("ph") != "M":
        yield f"ph is {event.get('ph')!r}"
    elif _METADATA.get(event.get("name")) not in event["args"]:
        yield f"{event.get('name')} without its argument"


def _crossings(events: list[Mapping[str, Any]]) -> Iterator[str]:
    """Events of a track follow each other: a viewer draws those that cross wrongly. In the file they are in order."""
    last: dict[int, Mapping[str, Any]] = {}
    for event in events:
        before = last.get(event["tid"])
        if before is not None and event["ts"] < before["ts"] + before["dur"] - 1e-3:
            yield f"{event['name']} begins before {before['name']} ends"
        last[event["tid"]] = event


def _unnamed(events: list[Mapping[str, Any]], complete: list[Mapping[str, Any]]) -> Iterator[str]:
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    for tid in sorted({event["tid"] for event in complete} - named):
        yield f"track {tid} has no name"
