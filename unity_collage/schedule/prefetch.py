"""Software prefetching: each panel of weights is fetched into the caches while the panel before it is used.

    for panel: for turn: for k: acc += a[..., k] * p[panel, k, :]
        ->  for panel: for turn: for k: prefetch(p[panel + 1] + (turn * steps + k) * share); acc += ...

Weights come from memory once in a run, and without prefetching the first pass over a panel waits for them. All passes
over a panel share the work: each fetches a part of the lines of the next panel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import tvm
from tvm import sym, tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

from . import build
from .stage import Expr, Iter, Stage, Var, static, stride, substitute
from .tiling import Tile

Fetch = Callable[[dict[Var, Expr]], Stmt]
"""Returns for the values of all iterators the statement that fetches a part of the next panel."""

_LINE_BYTES = 64
_READ_TO_KEEP = (0, 3, 1)
"""The last operands of LLVM's ``prefetch``: for reading, into all caches, of data."""


def of_next_panel(
    stage: Stage,
    load: TensorLoad,
    tile: Tile,
    outer: Sequence[Iter],
    turns: Sequence[Iter],
    share: Expr | int,
) -> Fetch | None:
    """The statement that fetches a part of the next panel of ``load`` in each step of the reduction.

    The innermost of the loops ``outer`` goes over panels, and ``turns`` are the loops over one panel. Of each step's
    part of the panel, each turn fetches ``share`` of the elements along the lanes of ``tile``. None if ``load`` does
    not read whole panels one after the other.
    """
    steps, width = stage.reduction, tile.width
    inside = prod(it.size or 0 for it in steps)
    if not outer or inside == 0:
        return None
    panel, per_line = outer[-1], _LINE_BYTES * 8 // tvm.DataType(str(load.source.dtype)).bits
    firsts = range(0, share if isinstance(share, int) else min(2 * per_line, width), per_line)
    if static(stride(load, panel.var, sym.Analyzer())) != inside * width:
        return None

    def fetch(values: dict[Var, Expr]) -> Stmt:
        at: Expr = tirx.const(0, panel.var.expr_ty().dtype)
        for it in (*turns, *steps):
            at = at * it.extent + values[it.var]
        following = {**values, panel.var: values[panel.var] + 1} | {
            it.var: tirx.const(0, it.var.expr_ty().dtype) for it in steps
        }
        return build.seq(*(line({**following, tile.lane.var: at * share + first}) for first in firsts))

    def line(values: dict[Var, Expr]) -> Stmt:
        indices = [substitute(index, values) for index in load.indices]
        place = tirx.address_of(tirx.BufferLoad(load.source, indices))
        return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", place, *_READ_TO_KEEP))

    return fetch
