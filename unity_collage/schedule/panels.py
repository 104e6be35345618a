"""Panels: a constant operand stored in the order in which the register tiles of its reader go through it.

    w[k, n], n in [0, 1000)   ->   p[n // 64, k, n % 64], the last panel from column 1000 - 64 on

This is the packing of BLAS libraries (see :mod:`.packing`), done once when a model is compiled. A tile of columns then
reads one contiguous range of memory from its first step to its last. If the width does not divide the number of
columns, the last panel overlaps its neighbour, as the last tile does: that needs no guards and no zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad

from .axes import axis, simplified, with_value
from .stage import Expr, Iter, Stage, buffer_of, static
from .tiling import must_not_overlap


@dataclass(frozen=True, slots=True)
class Panels:
    """How a tensor is cut into panels.

    Dimension ``cut``, of ``size`` elements, is cut into panels of ``width``. The other dimensions are ``outside`` of
    the panels or ``inside``, in the order of reading.
    """

    outside: tuple[int, ...]
    inside: tuple[int, ...]
    cut: int
    size: int
    width: int

    @property
    def count(self) -> int:
        """The number of panels."""
        return -(-self.size // self.width)

    def shape(self, shape: Sequence[int]) -> list[int]:
        """The shape of the packed tensor."""
        return [
            *(shape[i] for i in self.outside),
            self.count,
            *(shape[i] for i in self.inside),
            self.width,
        ]

    def indices(self, indices: Sequence[Expr]) -> list[Expr]:
        """The indices in the packed tensor of the element at ``indices``."""
        panel, lane = _place(indices[self.cut], self.size, self.width)
        return [*(indices[i] for i in self.outside), panel, *(indices[i] for i in self.inside), lane]

    def pack(self, array: np.ndarray) -> np.ndarray:
        """The packed tensor."""
        turned = array.transpose(*self.outside, *self.inside, self.cut)
        starts = [min(turn * self.width, self.size - self.width) for turn in range(self.count)]
        cuts = [turned[..., start : start + self.width] for start in starts]
        return np.ascontiguousarray(np.stack(cuts, axis=len(self.outside)))


def _place(index: Expr, size: int, width: int) -> tuple[Expr, Expr]:
    """The panel of a column, and the lane in the panel."""
    panel = tirx.floordiv(index, width)
    if size % width == 0:
        return panel, tirx.floormod(index, width)
    return panel, index - tirx.min(panel * width, tirx.const(size - width, index.expr_ty().dtype))


def split(stage: Stage, result: Stage) -> tuple[Stage, Stage]:
    """The two stages over panels and lanes, if they were over the columns of an operand in panels.

    for n: ... p[n // 64, k, n % 64]   ->   for panel, lane: ... p[panel, k, lane], n = panel * 64 + lane
    """
    for load in stage.loads:
        for it in stage.spatial:
            width = width_along(load, it)
            if width is None or it.size is None or (it.size % width and must_not_overlap(stage, result)):
                continue
            panel, lane = axis(it.var, -(-it.size // width)), axis(it.var, width)
            stage = with_value(stage, load, _of_panel(load, it, width, panel, lane))
            return _over(stage, it, panel, lane), _over(result, it, panel, lane)
    return stage, result


def width_along(load: TensorLoad, it: Iter) -> int | None:
    """The width of the panels if ``load`` reads panels along ``it``, else None."""
    width = static(buffer_of(load).shape[-1]) if load.indices else None
    if width is None or it.size is None or not 1 < width < it.size:
        return None
    analyzer = sym.Analyzer()
    analyzer.bind(it.var, Range.from_min_extent(tirx.const(0, it.var.expr_ty().dtype), it.extent))
    panel, lane = (analyzer.simplify(index) for index in _place(it.var, it.size, width))
    along = tvm_ffi.structural_equal(load.indices[-1], lane)
    return width if along and any(tvm_ffi.structural_equal(index, panel) for index in load.indices) else None


def _of_panel(load: TensorLoad, it: Iter, width: int, panel: Iter, lane: Iter) -> TensorLoad:
    """``load`` with the iterators ``panel`` and ``lane`` as indices."""
    first, _ = _place(it.var, it.size or 1, width)
    indices = [panel.var if tvm_ffi.structural_equal(index, first) else index for index in load.indices[:-1]]
    return tirx.BufferLoad(load.source, [*indices, lane.var])


def _over(stage: Stage, old: Iter, panel: Iter, lane: Iter) -> Stage:
    start: Expr = panel.var * lane.extent
    if (old.size or 0) % (lane.size or 1):
        start = tirx.min(start, old.extent - lane.extent)
    iters = [new for it in stage.iters for new in ((panel, lane) if it is old else (it,))]
    return simplified(stage.substituted({old.var: start + lane.var}, iters))
