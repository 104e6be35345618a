"""Where values lie that nobody outside of a stage reads: in few bytes, which stay in the caches of the lane's core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .stages import Stage

_ALIGNMENT = 64
"""Bytes: what TVM's kernels expect of their tensors."""
_BETWEEN_LANES = 4096
"""Bytes: no two lanes write into one page."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """The memory of a stage."""

    offsets: Mapping[int, int]
    """In bytes, by the number of the step whose result lies there."""
    nbytes: int

    @classmethod
    def of(cls, stage: Stage, readers: Mapping[int, frozenset[int]], nbytes: Mapping[int, int]) -> Scratch:
        """Places for the results of the steps that ``readers`` are given of, all of them in the same lane.

        ``nbytes`` is their size. A place is free again behind the last reader.
        """
        offsets: dict[int, int] = {}
        begin = end = 0
        for lane in stage:
            for number, low in _places(lane, readers, nbytes).items():
                offsets[number] = begin + low
                end = max(end, begin + low + nbytes[number])
            begin = end = _rounded(end, _BETWEEN_LANES)
        return cls(offsets, end)


def _places(
    lane: Sequence[int], readers: Mapping[int, frozenset[int]], nbytes: Mapping[int, int]
) -> dict[int, int]:
    """The lowest free place for each result, one after the other."""
    position = {number: index for index, number in enumerate(lane)}
    last = {
        number: max((position[reader] for reader in readers[number]), default=position[number])
        for number in lane
        if number in readers
    }
    found: dict[int, int] = {}
    for number in lane:
        if number not in last:
            continue
        taken = sorted(
            (low, low + nbytes[other]) for other, low in found.items() if last[other] >= position[number]
        )
        low = 0
        for begin, end in taken:
            if low + nbytes[number] <= begin:
                break
            low = max(low, _rounded(end, _ALIGNMENT))
        found[number] = low
    return found


def _rounded(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step
