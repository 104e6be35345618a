"""Which parameters of a kernel should be stored in panels, and the kernel that reads them in that form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import tvm_ffi
from tvm import tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad, TensorRegion

from . import build, families, tile, tiling
from .axes import with_value
from .cpu import CpuTraits
from .inline import inlined, inlined_stages
from .panels import Panels
from .stage import Buffer, Expr, Func, Iter, Stage, static

_PANEL_REGISTERS = 8
"""Vectors of one panel in a product with a vector: as many independent sums hide the latency of an addition."""
_NARROW_PANEL = 2
"""Vectors of each panel if several panels are read side by side."""


def choose(func: Func, params: Sequence[Buffer], cpu: CpuTraits) -> dict[Buffer, Panels]:
    """The panels for those ``params`` that the schedule of ``func`` would read faster from panels."""
    flat = inlined_stages(func)
    if isinstance(flat, str):
        return {}
    _, stages = flat
    found: dict[Buffer, Panels] = {}
    loads = [load.source for stage in stages for load in stage.loads]
    for stage, result in families.by_tiles(stages, cpu):
        for load in tiling.operands(stage):
            if load.source in params and loads.count(load.source) == 1:
                panels = panels_of(load, stage, result, cpu)
                if not isinstance(panels, str):
                    found[load.source] = panels
    return found


def panels_of(load: TensorLoad, stage: Stage, result: Stage, cpu: CpuTraits) -> Panels | str:
    """The panels in which the tiles of ``stage`` would read ``load``, or the reason why it should not be packed."""
    lane = tiling.result_lane(stage, result)
    if lane is None or lane.size is None:
        return "the result has no contiguous axis of a known size"
    order = _dimensions(load, stage, lane)
    if isinstance(order, str):
        return order
    if any(tiling.varies(other, lane) for other in tiling.operands(stage) if not other.same_as(load)):
        return "another operand changes with it: the operator has groups"
    outside, inside, cut = order
    turned = [*outside, *inside, cut]
    rows = build.buffer([load.source.shape[i] for i in turned], load.source, "rows")
    read = tirx.BufferLoad(rows, [load.indices[i] for i in turned])
    stage, result = tile.in_common_axes(with_value(stage, load, read), result)
    chosen = tiling.choose(stage, result, cpu)
    if isinstance(chosen, str):
        return chosen
    width = chosen.width if chosen.row else _lone_width(lane.size, chosen.vector, cpu)
    if chosen.lane.size != lane.size or not chosen.vector <= width < lane.size:
        return "one panel would contain all of it"
    if chosen.row is not None and not tiling.heavy(load):
        return "it stays in the first-level cache"
    return Panels(outside, inside, cut, lane.size, width)


def merit(func: Func, param: int, panels: Panels, cpu: CpuTraits) -> float | None:
    """The :attr:`~.tiling.Tile.merit` of the tiles of ``func`` if parameter number ``param`` is in ``panels``.

    None where the tiles would not read whole panels, or where no model chooses their size.
    """
    changed = packed(func, {func.params[param]: panels})
    flat = inlined_stages(changed)
    if isinstance(flat, str):
        return None
    for stage, result in families.by_tiles(flat[1], cpu):
        if any(load.source.same_as(flat[0].params[param]) for load in tiling.operands(stage)):
            chosen = tiling.choose(*tile.in_common_axes(stage, result), cpu)
            if isinstance(chosen, str) or chosen.lane.size != panels.width:
                return None
            return chosen.merit
    return None


def packed(func: Func, params: Mapping[Buffer, Panels]) -> Func:
    """``func`` with ``params`` stored in panels."""
    shapes = {param: [static(extent) or 1 for extent in param.shape] for param in params}
    fresh = {param: _buffer(param, panels.shape(shapes[param])) for param, panels in params.items()}

    def load(node: TensorLoad) -> TensorLoad:
        if node.source not in params:
            return node
        return tirx.BufferLoad(fresh[node.source], params[node.source].indices(list(node.indices)))

    def region(node: TensorRegion) -> TensorRegion:
        if node.source not in params:
            return node
        whole = fresh[node.source]
        return tirx.BufferRegion(whole, [Range(tirx.const(0, "int64"), extent) for extent in whole.shape])

    flat = inlined(func)
    body = tvm_ffi.structural_map(flat.body, ((TensorLoad, load), (TensorRegion, region)))
    return tirx.PrimFunc([fresh.get(param, param) for param in flat.params], body, flat.ret_type, flat.attrs)


def _buffer(param: Buffer, shape: Sequence[int]) -> Buffer:
    return build.buffer([tirx.const(extent, "int64") for extent in shape], param, param.name)


def _dimensions(
    load: TensorLoad, stage: Stage, lane: Iter
) -> tuple[tuple[int, ...], tuple[int, ...], int] | str:
    """The dimensions of the buffer of ``load``: those outside of the panels, those inside in the order of reading,
    and the one to cut.

    Or the reason why the buffer cannot be cut into panels.
    """
    place: dict[Expr, int] = {it.var: number for number, it in enumerate(stage.iters)}
    position: dict[int, int] = {}
    for dimension, index in enumerate(load.indices):
        if static(index) != 0:
            if index not in place or place[index] in position:
                return f"{load.source.name} is not indexed by the iterators alone"
            position[place[index]] = dimension
    if place[lane.var] not in position:
        return f"{load.source.name} does not follow the lanes"
    cut = position[place[lane.var]]
    inside = tuple(position[i] for i, it in enumerate(stage.iters) if it.reduces and i in position)
    outside = tuple(i for i in range(len(load.indices)) if i != cut and i not in inside)
    return outside, inside, cut


def _lone_width(size: int, one: int, cpu: CpuTraits) -> int:
    """The width of panels for a product with a vector.

    Narrow panels, read side by side, if all threads get equally many. Otherwise the width with which the last thread
    finishes first, the wider one of several.
    """
    if size % (one * _NARROW_PANEL * tiling.PANELS_AT_ONCE * cpu.cores) == 0:
        return one * _NARROW_PANEL
    vectors = ceil(size / one)

    def last_done(registers: int) -> int:
        return ceil(ceil(vectors / registers) / cpu.cores) * registers

    return one * min(range(min(_PANEL_REGISTERS, vectors), 0, -1), key=last_done)
