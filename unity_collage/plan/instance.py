"""A search problem as one text, so that a plan carries the problem that it answers.

It is JSON, compressed: with thousands of candidates it stays short enough for an attribute of a function.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any, cast

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
        count, backends = len(data["sources"]), data["backends"]
        devices = {_whole(identity): _text(device) for identity, device in data.get("devices", ())}
        least = {_whole(identity): _number(seconds) for identity, seconds in data.get("least", ())}
        unmeasured = frozenset(map(_whole, data.get("open", ())))
        return Problem(
            sources=tuple(tuple(map(_whole, sources)) for sources in data["sources"]),
            free=_nodes(data["free"], count),
            options=tuple(
                Option(
                    id=_whole(identity),
                    inside=_nodes(inside, count),
                    seconds=_number(seconds),
                    hidden=_nodes(hidden, count),
                    backend=_text(backends[_whole(backend)]),
                    low=None if low is None else _number(low),
                    high=None if high is None else _number(high),
                    device=devices.get(identity, ""),
                    least=least.get(identity),
                    is_open=identity in unmeasured,
                )
                for identity, inside, seconds, hidden, backend, low, high in data["options"]
            ),
            launch_seconds=_number(data["launch_seconds"]),
            results=_nodes(data["results"], count),
            transitions={
                (_text(writer), _text(reader)): _transition(each)
                for writer, reader, each in data["transitions"]
            },
            launches={_text(backend): _number(seconds) for backend, seconds in data["launches"].items()},
            exclusions=tuple((_text(one), _text(other)) for one, other in data.get("exclusions", ())),
            redundant=bool(data["redundant"]),
            drift=_number(data["drift"]),
        )
    except (
        binascii.Error,
        zlib.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        RecursionError,
    ) as error:
        raise InvalidAnnotation(f"the problem of a plan cannot be read: {error}") from error


def _list(indexes: IndexSet) -> list[int]:
    return list(members(indexes))


def _nodes(data: Any, count: int) -> IndexSet:
    """A set of nodes; there are ``count`` nodes."""
    nodes = [_whole(node) for node in data]
    if any(not 0 <= node < count for node in nodes):
        raise ValueError("a node does not exist")
    return index_set(nodes)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is not a number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _transition(each: Any) -> float | tuple[float, ...]:
    return tuple(map(_number, cast("list[Any]", each))) if isinstance(each, list) else _number(each)
