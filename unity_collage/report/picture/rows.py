"""Items in rows, so that lines run downwards and few of them cross (Sugiyama, Tagawa and Toda, 1981)."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

LONGEST = 200
"""Lines over more rows than this have no places of their own in the rows between."""
_SWEEPS = 8

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rows:
    """A graph in rows. Nodes from ``items`` on are bends: the places of long lines in the rows between their ends."""

    items: int
    rows: tuple[tuple[int, ...], ...]
    """The nodes of each row from left to right."""
    above: tuple[tuple[int, ...], ...]
    """For each node, its neighbours in the row above."""
    below: tuple[tuple[int, ...], ...]
    bends: dict[Edge, tuple[int, ...]]
    """For each edge, the nodes of its bends from top to bottom."""

    @property
    def row_of(self) -> dict[int, int]:
        """The row of each node."""
        return {node: number for number, row in enumerate(self.rows) for node in row}


def in_rows(items: int, edges: Sequence[Edge]) -> Rows:
    """The items 0, 1, ... in rows; each edge goes from an item to a later one, and to a row further down."""
    row_of = _row_numbers(items, edges)
    bends = _bends(row_of, edges)
    neighbours = _neighbours(len(row_of), row_of, edges, bends)
    below: list[list[int]] = [[] for _ in row_of]
    above: list[list[int]] = [[] for _ in row_of]
    for upper, lower in neighbours:
        below[upper].append(lower)
        above[lower].append(upper)
    rows: list[list[int]] = [[] for _ in range(max(row_of, default=-1) + 1)]
    for node, row in enumerate(row_of):
        rows[row].append(node)
    ordered = _with_few_crossings(rows, above, below)
    return Rows(items, tuple(map(tuple, ordered)), tuple(map(tuple, above)), tuple(map(tuple, below)), bends)


def _row_numbers(items: int, edges: Sequence[Edge]) -> list[int]:
    """As far up as possible; items with fewer inputs than readers as far down, which shortens their lines."""
    sources: list[list[int]] = [[] for _ in range(items)]
    readers: list[list[int]] = [[] for _ in range(items)]
    for source, reader in edges:
        sources[reader].append(source)
        readers[source].append(reader)
    rows = [0] * items
    for item in range(items):
        rows[item] = max((rows[source] + 1 for source in sources[item]), default=0)
    for item in reversed(range(items)):
        if readers[item] and len(sources[item]) < len(readers[item]) + (not sources[item]):
            rows[item] = min(rows[reader] for reader in readers[item]) - 1
    return rows


def _bends(row_of: list[int], edges: Sequence[Edge]) -> dict[Edge, tuple[int, ...]]:
    """The bends of each edge, whose rows are added to ``row_of``; all lines of a source share them."""
    chains: dict[int, list[int]] = {}
    bends: dict[Edge, tuple[int, ...]] = {}
    for source, reader in edges:
        between = row_of[reader] - row_of[source] - 1
        if between >= LONGEST:
            bends[source, reader] = ()
            continue
        chain = chains.setdefault(source, [])
        while len(chain) < between:
            chain.append(len(row_of))
            row_of.append(row_of[source] + len(chain))
        bends[source, reader] = tuple(chain[:between])
    return bends


def _neighbours(
    nodes: int, row_of: Sequence[int], edges: Sequence[Edge], bends: dict[Edge, tuple[int, ...]]
) -> list[Edge]:
    """The pairs of nodes in adjacent rows that a line joins, each once."""
    found: dict[Edge, None] = {}
    for edge in edges:
        path = (edge[0], *bends[edge], edge[1])
        for upper, lower in pairwise(path):
            if row_of[lower] == row_of[upper] + 1:
                found[upper, lower] = None
    return list(found)


def _with_few_crossings(
    rows: list[list[int]], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The rows, each in the order of the mean place of its neighbours, with sweeps down and up."""
    best, fewest = rows, _crossings(rows, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        neighbours = above if sweep % 2 == 0 else below
        rows = _swept(rows if sweep % 2 == 0 else rows[::-1], neighbours)
        rows = rows if sweep % 2 == 0 else rows[::-1]
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = rows, crossings
    return best


def _swept(rows: Sequence[Sequence[int]], neighbours: Sequence[Sequence[int]]) -> list[list[int]]:
    """Each row in the order of the mean place of its ``neighbours`` in the row before it."""
    places: dict[int, int] = {}
    found: list[list[int]] = []
    for row in rows:
        means = {
            node: sum(places[other] for other in neighbours[node]) / len(neighbours[node])
            if neighbours[node]
            else float(place)
            for place, node in enumerate(row)
        }
        ordered = sorted(row, key=means.__getitem__)
        places = {node: place for place, node in enumerate(ordered)}
        found.append(ordered)
    return found


def _crossings(rows: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """How many pairs of lines between adjacent rows cross."""
    total = 0
    for row, after in pairwise(rows):
        places = {node: place for place, node in enumerate(after)}
        seen: list[int] = []
        for node in row:
            ends = sorted(places[other] for other in below[node])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
