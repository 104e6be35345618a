"""A search problem as one text, so that a plan carries the problem that it answers.

It is JSON, compressed: with thousands of candidates it stays short enough for an attribute of a function.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidAnnotation
from ..index_set import IndexSet, index_set, members
from ..search import Option, Problem


def packed(problem: Problem) -> str:
    """``problem`` as text, for :func:`unpacked`."""
    backends = list(dict.fromkeys(option.backend for option in problem.options))
    devices = {option.id: option.device for option in problem.options if option.device}
    least = {option.id: option.least for option in problem.options if option.least is not None}
    unmeasured = [option.id for option in problem.options if option.is_open]
    data = {
        "sources": [list(sources) for sources in problem.sources],
        "free": _list(problem.free),
        "results": _list(problem.results),
        "backends": backends,
        "options": [
            [o.id, _list(o.inside), o.seconds, _list(o.hidden), backends.index(o.backend), o.low, o.high]
            for o in problem.options
        ],
        **({"devices": list(devices.items())} if devices else {}),
        **({"least": list(least.items())} if least else {}),
        **({"open": unmeasured} if unmeasured else {}),
        "launch_seconds": problem.launch_seconds,
        "launches": dict(problem.launches),
        "transitions": [[*pair, seconds] for pair, seconds in problem.transitions.items()],
        "exclusions": [list(pair) for pair in problem.exclusions],
        "redundant": problem.redundant,
        "drift": problem.drift,
    }
    text = json.dumps(data, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> Problem:
    """The problem in a text of :func:`packed`; raises InvalidAnnotation."""
    try:
        data = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
        backends, devices = data["backends"], dict(data.get("devices", ()))
        least, unmeasured = dict(data.get("least", ())), frozenset(data.get("open", ()))
        return Problem(
            sources=tuple(tuple(sources) for sources in data["sources"]),
            free=index_set(data["free"]),
            options=tuple(_option(row, backends, devices, least, unmeasured) for row in data["options"]),
            launch_seconds=data["launch_seconds"],
            results=index_set(data["results"]),
            transitions={(writer, reader): _transition(each) for writer, reader, each in data["transitions"]},
            launches=data["launches"],
            exclusions=tuple((one, other) for one, other in data.get("exclusions", ())),
            redundant=data["redundant"],
            drift=data["drift"],
        )
    except (binascii.Error, zlib.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidAnnotation(f"the problem of a plan cannot be read: {error}") from error


def _list(indexes: IndexSet) -> list[int]:
    return list(members(indexes))


def _option(
    row: list[Any],
    backends: Any,
    devices: Mapping[int, str],
    least: Mapping[int, float],
    unmeasured: frozenset[int],
) -> Option:
    identity, inside, seconds, hidden, backend, low, high = row
    return Option(
        identity,
        index_set(inside),
        seconds,
        index_set(hidden),
        backends[backend],
        low,
        high,
        devices.get(identity, ""),
        least.get(identity),
        identity in unmeasured,
    )


def _transition(each: Any) -> float | tuple[float, ...]:
    return each if isinstance(each, float | int) else tuple(map(float, each))
