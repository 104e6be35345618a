"""Scratch memory for values that are read only inside a stage; it is kept small enough for the caches of a core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .stages import Stage

_ALIGNMENT = 64
"""In bytes; TVM's kernels expect this alignment of their tensors."""
_BETWEEN_LANES = 4096
"""In bytes; no two lanes write to the same page."""


@dataclass(frozen=True, slots=True)
class BranchScratch:
    """The scratch memory of a stage."""

    offsets: Mapping[int, int]
    """The offset of each step's result in bytes, by the number of the step."""
    nbytes: int

    @classmethod
    def of(
        cls, stage: Stage, readers: Mapping[int, frozenset[int]], nbytes: Mapping[int, int]
    ) -> BranchScratch:
        """Memory for the results of all steps in ``readers``, which must be in the same lane as their readers.

        ``nbytes`` is the size of each result. Its memory is free again after the last reader.
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
    """The lowest free offset for each result, one after the other."""
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
