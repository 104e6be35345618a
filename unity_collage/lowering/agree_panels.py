"""One layout for kernels that read the same constants, if the loss is too small to be measured.

A kernel of 16 rows reads its weights best in panels of 24 columns, and a kernel of any number of rows in panels of
16. So the program of a model with variants for several sizes would have each weight twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache

from tvm import tirx

from ..schedule import weights
from ..schedule.cpu import CpuTraits
from ..schedule.panels import Panels

MOST_LOST = 0.02
"""The most that a kernel may lose with panels other than its own, as a part of its time by the model of
:mod:`..schedule.tiling`. Two measurements of one kernel differ as much.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """A parameter of a kernel: its best panels, and the constants that calls pass for it."""

    kernel: tirx.PrimFunc
    param: int
    panels: Panels
    constants: frozenset[Hashable]
    cpu: CpuTraits

    def lost_by(self, panels: Panels) -> float | None:
        """The part of its time that the kernel loses with ``panels``, at least 0; None if it cannot read them."""
        if panels == self.panels:
            return 0.0
        own, other = self._merit(self.panels), self._merit(panels)
        return None if own is None or other is None else max(0.0, 1 - other / own)

    def _merit(self, panels: Panels) -> float | None:
        return weights.merit(self.kernel, self.param, panels, self.cpu)


def agreed(readers: Sequence[Reader]) -> dict[Reader, Panels]:
    """The panels of each reader: the same for those that read a constant together, unless one loses too much."""
    chosen: dict[Reader, Panels] = {}
    for group in _groups(readers):
        chosen |= _covered(group)
    return chosen


def _covered(group: Sequence[Reader]) -> dict[Reader, Panels]:
    """The panels that most readers can share, then panels for the others, until each reader has some.

    Of several possible panels, those with the smallest largest loss are taken.
    """
    lost_by = cache(Reader.lost_by)
    chosen: dict[Reader, Panels] = {}
    while left := [reader for reader in group if reader not in chosen]:
        lost: dict[Panels, dict[Reader, float]] = {}
        for panels in dict.fromkeys(reader.panels for reader in left):
            by_reader = {reader: lost_by(reader, panels) for reader in left}
            lost[panels] = {
                r: part for r, part in by_reader.items() if part is not None and part <= MOST_LOST
            }
        best = max(lost, key=lambda panels: (len(lost[panels]), -max(lost[panels].values())))
        chosen |= dict.fromkeys(lost[best], best)
    return chosen


def _groups(readers: Sequence[Reader]) -> list[list[Reader]]:
    """The readers that are linked by common constants, group by group."""
    groups: list[list[Reader]] = []
    for reader in readers:
        linked = [group for group in groups if any(reader.constants & other.constants for other in group)]
        groups = [group for group in groups if group not in linked]
        groups.append([*(other for group in linked for other in group), reader])
    return groups
