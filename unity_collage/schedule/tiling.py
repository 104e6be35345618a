"""The choice of the register tile of a reduction: its axes and its size.

A tile is ``height`` rows of ``width`` results, which stay in vector registers during the whole reduction. Lanes run
along the axis in which the result is contiguous. Rows run along an axis in which an operand in the lanes does not
change. So each loaded vector is used ``height`` times, and each broadcast element ``width / lanes`` times. A model of
the loads for each multiplication chooses among all sizes that fit the registers (:func:`_sizes`); the analysis is
that of Low et al., "Analytical Modeling Is Enough for High-Performance BLIS", 2016, with constants set by hand.

If the size of the row axis is known only when the program runs, the last tile overlaps its neighbour. Fewer rows than
those of a tile are computed in lower tiles or one by one.

Without a row axis, as in a product with a vector, a tile is one row or, over packed weights, two panels side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

import tvm
from tvm import sym, tirx
from tvm.ir.expr import TensorLoad

from . import build, vectors
from .cpu import CpuTraits
from .stage import Expr, Iter, Stage, static, stride

STACK_BYTES = 1024
"""TVM does not put buffers of this size or more on the stack, so LLVM cannot keep them in registers."""
SMALL_STEP = 4
"""The largest stride along the lanes with which LLVM still vectorises a loop over single elements."""
_LONE_REGISTERS = 14
"""The most vectors of results in a tile of one row, with 32 registers; with 16 registers it is 12."""
_COST_OF_ROW, _COST_OF_COLUMN, _COST_OF_WIDTH = 0.5, 0.25, 0.02
"""The overhead of a tile of h rows of u vectors, relative to its multiplications.

It is the first constant divided by h, plus the second divided by u, plus the third times u. These are for loading
vectors, for broadcasting elements, and for the tile's share of L1. They were set by hand from a few forced shapes in
BERT, ViT and ResNeXt (Zen 5), and are not a fit.
"""
_COST_OF_BYTE, _FEW = 0.4 / 2**20, 32
"""The overhead of each byte that a tile reads of a large operand in the lanes, for up to ``_FEW`` rows.

All rows read these bytes again from the second-level cache, while the next ones are fetched into it. The more rows
there are, the longer the next bytes may take. Set by hand from chains of products over weights in memory (Zen 5). With
2048 steps and 20 rows, tiles of 64 columns took 129 us and of 32 columns 97 us.
"""
_WAY_BYTES, _ALIASED_ROWS = 4096, 8
"""Cache lines at this distance map to one set of L1, which has 8 to 12 ways. At most ``_ALIASED_ROWS`` rows may do
so."""
_PLAIN_REGISTERS = 4
"""Vectors of results if no operand is used twice: as many as hide the latency of an addition."""
PANELS_AT_ONCE = 2
"""How many panels of a product with a vector are read side by side: hardware prefetches more of two streams than of
one."""
_FREE_HEIGHT = 8
"""The greatest height of a tile if the number of rows is known only when the program runs.

Lower tiles overlap less, and have less code. Products of 3 to 256 rows took 0.98 times as long as with 14 rows in a
tile (Zen 5, geometric mean).
"""
_FREE_ROWS = 6
"""The assumed number of rows of an axis with a size that is known only when the program runs."""
_HEAVY_BYTES = 64 * 1024
"""An operand in the lanes that is larger than this does not stay in L1 between two rows of tiles."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A choice of axes and sizes."""

    lane: Iter
    """The axis along the lanes: the result and each operand that varies along it are contiguous there."""
    width: int
    """Elements of the tile along the lanes."""
    vector: int
    """Elements of one vector; 1 if LLVM vectorises the loop over the lanes."""
    row: Iter | None
    """An axis along which a loaded vector is used again; None for a tile of one row."""
    height: int
    """Rows of the tile."""
    merit: float | None = None
    """The share of useful multiplications in all work, loads included; None where no model chose among sizes."""

    @property
    def steps(self) -> bool:
        """Whether an operand has a small stride along the lanes, so that LLVM must vectorise the loop."""
        return self.vector == 1


def choose(stage: Stage, result: Stage, cpu: CpuTraits) -> Tile | str:
    """The tile for the reduction ``stage``, with its results written by ``result``, or the reason why there is none."""
    lane = lane_axis(stage, result)
    if isinstance(lane, str):
        return lane
    assert lane.size is not None
    analyzer, one, exact = sym.Analyzer(), vectors.lanes(stage, cpu), must_not_overlap(stage, result)
    if any((static(stride(load, lane.var, analyzer)) or 0) > 1 for load in operands(stage)):
        longest = (STACK_BYTES - 1) * one // cpu.vector_bytes
        return Tile(lane, build.tile_size(lane.size, longest, exact), 1, None, 1)
    row = _row_axis(stage, lane)
    budget = min(cpu.registers - 4, _LONE_REGISTERS)
    if row is None and (panels := _panels(stage, lane)) is not None:
        several = PANELS_AT_ONCE * lane.size // one <= budget and _in_turns(panels, cpu)
        return Tile(lane, lane.size, one, *((panels, PANELS_AT_ONCE) if several else (None, 1)))
    if row is None:
        return Tile(lane, _lone_width(stage, lane, one, budget, cpu, exact), one, None, 1)
    most = _unaliased(stage, row)
    rows = row.size or factor(row.extent)
    free = row.size is None and rows <= _FREE_HEIGHT
    rows, most = (None, min(most, _FREE_HEIGHT)) if free else (rows, min(most, rows))
    column = _cost_of_columns(stage, lane)
    merit, width, height = max(_sizes(lane.size, rows, most, one, cpu, exact, column))
    return Tile(lane, width, one, row, height, merit)


def factor(extent: Expr) -> int:
    """A number of which ``extent`` is a multiple, whatever the sizes are."""
    known = sym.Analyzer().modular_set(extent)
    return int(known.coeff) if int(known.base) == 0 else 1


def must_not_overlap(stage: Stage, result: Stage) -> bool:
    """Whether tiles must not overlap, because an element that is written twice would be read in between."""
    assert result.store is not None
    read = [load.source for load in (*operands(stage), *operands(stage, result))]
    return result.temporary or result.passed_on or any(source.same_as(result.store.buffer) for source in read)


def operands(stage: Stage, of: Stage | None = None) -> list[TensorLoad]:
    """The loads of ``of``, by default of ``stage``, without those of the result of ``stage``."""
    assert stage.store is not None
    return [load for load in (of or stage).loads if not load.source.same_as(stage.store.buffer)]


def wide(stage: Stage, lane: Iter) -> list[TensorLoad]:
    """The operands in the lanes: those that are contiguous along ``lane``."""
    analyzer = sym.Analyzer()
    return [load for load in operands(stage) if static(stride(load, lane.var, analyzer)) == 1]


def heavy(load: TensorLoad) -> bool:
    """Whether an operand in the lanes is too large for the first-level cache."""
    return prod(static(extent) or 1 for extent in load.source.shape) * 4 > _HEAVY_BYTES


def varies(load: TensorLoad, it: Iter) -> bool:
    """Whether ``load`` reads another element for each value of ``it``."""
    return static(stride(load, it.var, sym.Analyzer())) != 0


def result_lane(stage: Stage, result: Stage) -> Iter | None:
    """The axis along which the result is contiguous."""
    analyzer = sym.Analyzer()
    if result.store is None:
        return None
    for it in stage.spatial:
        if it.size is not None and it.size > 1 and static(stride(result.store, it.var, analyzer)) == 1:
            return it
    return None


def lane_axis(stage: Stage, result: Stage) -> Iter | str:
    """The axis along which the result is contiguous and each operand has a small stride, or why there is none."""
    lane, analyzer = result_lane(stage, result), sym.Analyzer()
    if lane is None:
        return "the result has no contiguous axis of a known size"
    for load in operands(stage):
        step = static(stride(load, lane.var, analyzer))
        if step is None or not 0 <= step <= SMALL_STEP:
            return f"{load.source.name} is not contiguous along the lanes"
    return lane


def _row_axis(stage: Stage, lane: Iter) -> Iter | None:
    """The innermost large axis along which an operand in the lanes does not change, or None."""
    found = [
        it
        for it in reversed(stage.spatial)
        if it is not lane and it.size != 1 and not all(varies(load, it) for load in wide(stage, lane))
    ]
    return max(found, key=lambda it: min(it.size or _FREE_ROWS, 8), default=None)


def _panels(stage: Stage, lane: Iter) -> Iter | None:
    """The axis over panels if the operand in the lanes is stored in panels as wide as the lanes, else None."""
    (load, *others) = wide(stage, lane) or [None]
    if load is None or others or not isinstance(load.indices[-1], tirx.Var):
        return None
    along = [it for it in stage.spatial if it is not lane and varies(load, it)]
    return along[-1] if along and static(load.source.shape[-1]) == lane.size else None


def _in_turns(panels: Iter, cpu: CpuTraits) -> bool:
    """Whether every core gets the same number of iterations over ``PANELS_AT_ONCE`` panels."""
    return (panels.size or 1) % (PANELS_AT_ONCE * cpu.cores) == 0


def _lone_width(stage: Stage, lane: Iter, one: int, budget: int, cpu: CpuTraits, exact: bool) -> int:
    """The width of a tile of one row: as wide as registers allow, but with some tiles for every core.

    A product with a vector then reads long contiguous ranges of its matrix.
    """
    most = budget if len(stage.reduction) == 1 else _PLAIN_REGISTERS
    size = lane.size or 1
    choices = [build.tile_size(size, one * count, exact) for count in range(1, most + 1)]
    width = max(choices, key=lambda width: (_useful(size, width, one), width))
    outer = prod(it.size or 1 for it in stage.spatial if it is not lane)
    while width > one and outer * -(-size // width) < 2 * cpu.cores:
        width = build.tile_size(size, max(width // 2 // one * one, one), exact)
        if exact and width < one:
            break
    return width


def _useful(size: int, width: int, one: int) -> float:
    """The share of lanes that compute needed results, in tiles of ``width`` made of vectors of ``one`` elements."""
    return size / (-(-size // width) * -(-width // one) * one)


def _unaliased(stage: Stage, row: Iter) -> int:
    """How many rows can be read at a time without evicting each other from L1."""
    most = _ALIASED_ROWS * _WAY_BYTES
    for load in operands(stage):
        step = static(stride(load, row.var, sym.Analyzer()))
        if step:
            between = step * tvm.DataType(str(load.source.dtype)).bits // 8
            most = min(most, _ALIASED_ROWS * (_WAY_BYTES // gcd(between, _WAY_BYTES)))
    return most


def _cost_of_columns(stage: Stage, lane: Iter) -> float:
    """The overhead of a tile for each column of a large operand in the lanes; see ``_COST_OF_BYTE``."""
    large = [load for load in wide(stage, lane) if heavy(load)]
    bits = max((tvm.DataType(str(load.source.dtype)).bits for load in large), default=0)
    steps = prod(it.size or 1 for it in stage.reduction)
    same = [it for it in stage.spatial if it is not lane and not any(varies(load, it) for load in large)]
    rows = prod(it.size or _FEW for it in same)
    return _COST_OF_BYTE * steps * bits / 8 * min(_FEW / rows, 1.0)


def _sizes(
    lanes: int, rows: int | None, most: int, one: int, cpu: CpuTraits, exact: bool, column: float
) -> list[tuple[float, int, int]]:
    """All possible tiles of up to ``most`` rows as (merit, width, height).

    The merit is the share of useful multiplications in all work, loads included. The registers must hold the results,
    a row of one operand and one broadcast element of the other. If ``rows`` is None, their number is not known: they
    are many, and any height divides them, since what is left is computed in lower tiles. ``column`` is the overhead for
    each column.
    """
    found: list[tuple[float, int, int]] = []
    for several in range(1, 5):
        width = build.tile_size(lanes, one * several, exact)
        used = -(-width // one)
        room = min((cpu.registers - 1 - used) // used, (STACK_BYTES - 1) // cpu.vector_bytes)
        for height in range(1, min(room, most) + 1):
            if not exact or rows is None or rows % height == 0:
                share = 1.0 if rows is None else rows / (-(-rows // height) * height)
                useful = _useful(lanes, width, one) * share
                reading = _COST_OF_ROW / height + _COST_OF_COLUMN / used + _COST_OF_WIDTH * used
                reading += width * column
                found.append((useful / (1 + reading), width, height))
    return found
