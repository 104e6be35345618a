"""The picture of a plan as plain data: frames of kernels and of repeated blocks, with a place for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...plan.explanation import Explanation
from .columns import places
from .folding import Fold, Item, folded
from .rows import in_rows

NODE_WIDTH = 196
"""Pixels; the page decides about heights, since unfolded blocks grow downwards."""
FRAME_MARGIN = 14
"""Pixels between a repeated block's kernels and its frame, left and right."""
_VALUES = 4
"""How many values are named at a line."""


def picture_of(explanation: Explanation) -> dict[str, Any]:
    """The kernels of an explanation, laid out.

    ``frames``: the whole first, then a copy of each repeated block. A frame has its ``width``, and ``items`` with the
    ``x`` of their centres. An item is a ``kernel``, a block (its ``frame``, ``first`` kernel, ``size`` and ``count``,
    and whether it is ``chained``: each copy reads from the one before), or a ``port``, "in" or "out", for what is
    read from outside. ``rows`` are the items from top to bottom. ``edges`` have the two items, the x of the bends in
    the rows between, and the bindings whose values are read.
    """
    reads = [kernel.reads for kernel in explanation.kernels]
    drawing = _Drawing(explanation, reads)
    drawing.frame(folded(_kinds(explanation), reads), 0, len(reads), inside=False)
    return {"node": NODE_WIDTH, "margin": FRAME_MARGIN, "frames": drawing.frames}


def _kinds(explanation: Explanation) -> list[tuple[str, str, int]]:
    """What makes kernels equal: backend, label, and the cost, which equal workloads share."""
    chosen = [explanation.by_id[kernel.candidate] for kernel in explanation.kernels]
    return [(each.backend, each.label, each.cost) for each in chosen]


class _Drawing:
    """Collects frames; a frame is added before those inside it."""

    def __init__(self, explanation: Explanation, reads: Sequence[Sequence[int]]) -> None:
        self.frames: list[dict[str, Any]] = []
        self._reads = reads
        self._inputs = [kernel.inputs for kernel in explanation.kernels]
        self._writer: dict[int, int] = {}
        self._readers: list[list[int]] = [[] for _ in reads]
        for number, kernel in enumerate(explanation.kernels):
            own = explanation.by_id[kernel.candidate]
            self._writer |= {index: number for index in own.bindings if index not in own.hidden}
            for source in reads[number]:
                self._readers[source].append(number)

    def frame(self, items: Sequence[Item], start: int, stop: int, *, inside: bool) -> int:
        """Lay out the ``items``, the kernels from ``start`` to ``stop``; returns the number of the frame."""
        own: dict[str, Any] = {}
        number = len(self.frames)
        self.frames.append(own)
        entries = [self._entry(item) for item in items]
        owner = {kernel: place for place, item in enumerate(items) for kernel in _kernels(item)}
        edges = self._edges(owner, start, stop)
        if inside:
            entries, edges = self._with_ports(entries, edges, owner, start, stop)
        rows = in_rows(len(entries), list(edges))
        xs, width = places(rows, [self._width(entry) for entry in entries])
        own |= {
            "width": width,
            "items": entries,
            "x": xs[: len(entries)],
            "rows": [[node for node in row if node < len(entries)] for row in rows.rows],
            "edges": [
                [*edge, [xs[bend] for bend in rows.bends[edge]], list(values)]
                for edge, values in edges.items()
            ],
        }
        return number

    def _entry(self, item: Item) -> dict[str, Any]:
        if not isinstance(item, Fold):
            return {"kernel": item}
        frame = self.frame(item.body, item.first, item.first + item.size, inside=True)
        return {
            "frame": frame,
            "first": item.first,
            "size": item.size,
            "count": item.count,
            "chained": self._chained(item),
        }

    def _width(self, entry: dict[str, Any]) -> int:
        if "port" in entry:
            return 0
        return NODE_WIDTH if "kernel" in entry else self.frames[entry["frame"]]["width"] + 2 * FRAME_MARGIN

    def _chained(self, fold: Fold) -> bool:
        """Whether each copy reads from the copy before."""
        for first in range(fold.first + fold.size, fold.stop, fold.size):
            before = range(first - fold.size, first)
            copy = range(first, first + fold.size)
            if not any(source in before for kernel in copy for source in self._reads[kernel]):
                return False
        return True

    def _edges(self, owner: dict[int, int], start: int, stop: int) -> dict[tuple[int, int], tuple[int, ...]]:
        """The lines between items, with the bindings whose values are read."""
        found: dict[tuple[int, int], dict[int, None]] = {}
        for kernel in range(start, stop):
            for source in self._reads[kernel]:
                if source >= start and owner[source] != owner[kernel]:
                    values = found.setdefault((owner[source], owner[kernel]), {})
                    values |= dict.fromkeys(self._values(source, kernel))
        return {edge: tuple(values)[:_VALUES] for edge, values in sorted(found.items())}

    def _values(self, source: int, kernel: int) -> list[int]:
        """The values of ``source`` that ``kernel`` reads; if it reads none directly, values computed from them
        outside kernels.
        """
        own = [index for index in self._inputs[kernel] if self._writer.get(index) == source]
        return own or [index for index in self._inputs[kernel] if index not in self._writer]

    def _with_ports(
        self,
        entries: list[dict[str, Any]],
        edges: dict[tuple[int, int], tuple[int, ...]],
        owner: dict[int, int],
        start: int,
        stop: int,
    ) -> tuple[list[dict[str, Any]], dict[tuple[int, int], tuple[int, ...]]]:
        """Entries and edges with the ports of a block: one before all items, and one behind them."""
        reading = {owner[k] for k in range(start, stop) if any(s < start for s in self._reads[k])}
        read = {owner[k] for k in range(start, stop) if self._is_read_outside(k, stop)}
        moved = {(upper + 1, lower + 1): values for (upper, lower), values in edges.items()}
        enters = {(0, place + 1): () for place in sorted(reading)}
        leaves = {(place + 1, len(entries) + 1): () for place in sorted(read)}
        return [{"port": "in"}, *entries, {"port": "out"}], {**enters, **moved, **leaves}

    def _is_read_outside(self, kernel: int, stop: int) -> bool:
        readers = self._readers[kernel]
        return not readers or any(reader >= stop for reader in readers)


def _kernels(item: Item) -> Iterator[int]:
    if isinstance(item, Fold):
        yield from range(item.first, item.stop)
    else:
        yield item
