"""Asks the process that measures for launches and transitions, and joins its replies for all backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..backends.registry import excluding
from ..plan.costs import Point
from ..search.camps import largest_compatible
from .questions import Client

_BY_NAME = ("launches", "transitions", "unknown")
"""The keys of a reply that hold values by backend or pair of backends."""


def measured_overheads(client: Client, names: Sequence[str], target: str) -> dict[str, Any]:
    """The merged replies for all sets of the backends ``names`` that can be in one process.

    It has a ``reason`` where the first failed, else ``seconds`` of a launch, ``launches`` and ``transitions``.
    """
    exclusions = [(one, other) for one, _, other in (pair.partition("|") for pair in excluding(names))]
    every = [_of_camp(client, sorted(camp), target) for camp in largest_compatible(names, exclusions)]
    found = every[0]
    for other in every[1:]:
        if "seconds" not in found or "seconds" not in other:
            return found if "seconds" not in found else other
        merged = {part: {**found.get(part, {}), **other.get(part, {})} for part in _BY_NAME}
        found = {**found, **merged, "doubtful": found["doubtful"] or other["doubtful"]}
    return found


def _of_camp(client: Client, names: Sequence[str], target: str) -> dict[str, Any]:
    """The reply for backends of one process; if one of them has ended the process, that for TVM's launches alone.

    It is doubtful if the process ended by a cause that may pass: the next compile asks again.
    """
    question = {"ask": "launch", "target": target}
    found = client.ask({**question, "backends": names})
    if "seconds" in found:
        return found
    others = [name for name in names if name != "tvm"]
    alone = client.ask({**question, "backends": ["tvm"]})
    if "seconds" not in alone or not others:
        return alone
    why = f"a probe of {', '.join(others)} failed: {found['reason']}"
    is_doubtful = alone["doubtful"] or not found.get("lasting", True)
    return {**alone, "unknown": dict.fromkeys(others, why), "doubtful": is_doubtful}


def points_of(found: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, tuple[Point, ...]]:
    """The points of each pair of backends, from JSON data."""
    return {pair: tuple((int(size), float(s)) for size, s in points) for pair, points in found.items()}
