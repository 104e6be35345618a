"""Regions: the bindings of a block in groups of one device, as few as possible without a cycle between groups."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class DeviceRegion:
    """Some bindings of one block, by position."""

    key: Hashable | None
    """The common key of the bindings; None for one binding that is in no group."""
    inside: list[int] = field(default_factory=list)


def regions(keys: Sequence[Hashable | None], reads: Sequence[Sequence[int]]) -> list[DeviceRegion]:
    """Group bindings of equal keys, and return all groups in an order in which each is after what it reads.

    ``reads[i]`` are the earlier bindings that binding ``i`` reads. A binding joins the latest group of its key
    without another group between them: so groups are convex, and no two of them read each other.
    """
    made: list[DeviceRegion] = []
    of: list[int] = []
    feeds: list[set[int]] = []
    for node, key in enumerate(keys):
        sources = {of[source] for source in reads[node]}
        joined = None if key is None else _joinable(made, key, sources, feeds)
        if joined is None:
            made.append(DeviceRegion(key))
            feeds.append(set())
            joined = len(made) - 1
        made[joined].inside.append(node)
        of.append(joined)
        for source in sources - {joined}:
            feeds[source].add(joined)
    return [made[group] for group in _ordered(made, feeds)]


def _joinable(
    made: Sequence[DeviceRegion], key: Hashable, sources: set[int], feeds: Sequence[set[int]]
) -> int | None:
    """The latest group of ``key`` that reaches none of the other ``sources``."""
    for group in reversed(range(len(made))):
        if made[group].key == key and not (_reached(group, feeds) & (sources - {group})):
            return group
    return None


def _reached(group: int, feeds: Sequence[set[int]]) -> set[int]:
    """The groups that need ``group``, directly or not."""
    found: set[int] = set()
    waiting = [group]
    while waiting:
        for other in feeds[waiting.pop()]:
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def _ordered(made: Sequence[DeviceRegion], feeds: Sequence[set[int]]) -> Iterator[int]:
    """The groups, each after those that feed it, otherwise by their first binding."""
    missing = [0] * len(made)
    for group in feeds:
        for other in group:
            missing[other] += 1
    pending = sorted(range(len(made)), key=lambda group: made[group].inside[0])
    while pending:
        ready = next(group for group in pending if not missing[group])
        pending.remove(ready)
        yield ready
        for other in feeds[ready]:
            missing[other] -= 1
