"""Small reductions on a GPU, such as poolings and depthwise convolutions: each thread computes one result.

The rules of TVM's dlight give a block of 256 threads to each result. For a window of 3x3 that leaves 247 of them idle.
"""

from __future__ import annotations

import math

from tvm import ir, s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo, normalize_prim_func
from tvm.s_tir.dlight.base import try_inline
from tvm.target import Target

_THREADS = 256
"""The threads of a block."""
_SMALL = 32
"""A reduction of up to this many elements is done by one thread, however few results there are; its loops are
unrolled."""
_LARGEST = 256
"""The largest reduction that one thread does."""
_ENOUGH = 1 << 14
"""How many results keep a GPU busy when each has one thread."""


class SmallReduction:
    """One thread for each result of a small reduction, and for the element-wise operators on it.

    ``apply`` is the interface of dlight's rules.
    """

    def apply(self, func: tirx.PrimFunc, _target: Target, _tunable: bool) -> s_tir.Schedule | None:
        """The loops of ``func`` bound to threads; None if it is not one small reduction with elementwise neighbours."""
        schedule = s_tir.Schedule(func)
        found = normalize_prim_func(schedule)
        blocks = try_inline(schedule, found) if found else []
        if not blocks or not _is_taken(blocks):
            return None
        reduction, info = blocks[0].block_rv, blocks[0]
        if len(blocks) == 2:
            last = blocks[1].block_rv
            schedule.set_scope(reduction, 0, "local")
        else:
            last = schedule.cache_write(reduction, 0, "local")
        loops = list(zip(schedule.get_loops(reduction), info.dom_kind(), strict=True))
        outer = [loop for loop, kind in loops if kind == "S"]
        inner = [loop for loop, kind in loops if kind == "R"]
        schedule.reorder(*outer, *inner)
        block, thread = schedule.split(schedule.fuse(*outer), factors=[None, _THREADS])
        schedule.bind(block, "blockIdx.x")
        schedule.bind(thread, "threadIdx.x")
        schedule.reverse_compute_at(last, thread, preserve_unit_loops=True)
        schedule.decompose_reduction(reduction, inner[0])
        if (_reduced(info) or math.inf) <= _SMALL:
            for loop in inner:
                schedule.unroll(loop)
        return schedule


def _is_taken(blocks: list[SBlockInfo]) -> bool:
    """Whether the blocks are a small reduction, alone or with one element-wise block that uses each result once."""
    first, rest = blocks[0], blocks[1:]
    if not first.is_reduction() or len(rest) > 1 or any(not block.is_injective() for block in rest):
        return False
    results, reduced = _results(first), _reduced(first)
    if results is None or reduced is None or any(_results(block) != results for block in rest):
        return False
    return reduced <= _SMALL or (reduced <= _LARGEST and results >= _ENOUGH)


def _results(info: SBlockInfo) -> int | None:
    return _extent(info, "S")


def _reduced(info: SBlockInfo) -> int | None:
    return _extent(info, "R")


def _extent(info: SBlockInfo, kind: str) -> int | None:
    """The product of the extents of the loops of this kind; None if one is not known, or if the block has loops that
    are neither spatial nor reductions."""
    if set(info.dom_kind()) - {"S", "R"}:
        return None
    chosen = [it.dom for it, of in zip(info.iters, info.dom_kind(), strict=True) if of == kind]
    known = [each for each in map(_number, chosen) if each is not None]
    return math.prod(known) if len(known) == len(chosen) else None


def _number(extent: ir.Expr | int) -> int | None:
    if isinstance(extent, tirx.IntImm):
        return int(extent.value)
    return extent if isinstance(extent, int) else None


def row_length(func: tirx.PrimFunc) -> int | None:
    """How many elements the first reduction of ``func`` adds up for one result; None without one, or if unknown."""
    blocks = normalize_prim_func(s_tir.Schedule(func)) or []
    return next((_reduced(block) for block in blocks if block.is_reduction()), None)
