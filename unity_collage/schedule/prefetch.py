"""Panels of weights that are fetched into the caches while the one before them is used.

    for panel: for turn: for k: acc += a[..., k] * p[panel, k, :]
        ->  for panel: for turn: for k: prefetch(p[panel + 1] + (turn * steps + k) * share); acc += ...

Weights come from memory once a run, and the first turn over a panel waits for them. All turns over one panel share
the lines of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tvm import sym, tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

from .stage import Expr, Iter, Stage, Var, static, stride, substitute

Fetch = Callable[[dict[Var, Expr]], Stmt]
"""Fetches a share of the next panel, given the values of all iterators."""

_READ_TO_KEEP = (0, 3, 1)
"""The last operands of LLVM's ``prefetch``: for reading, into all caches, of data."""


def of_next_panel(
    stage: Stage, load: TensorLoad, outer: Sequence[Iter], turns: Sequence[Iter], width: int
) -> Fetch | None:
    """What fetches the next panel of ``load`` in each step of the reduction, over loops ``outer`` and inside of them
    ``turns`` over one panel; None where ``load`` does not go through whole panels one after the other."""
    analyzer, steps = sym.Analyzer(), stage.reduction
    sizes = [it.size or 0 for it in (*turns, *steps)]
    if not outer or prod(sizes) == 0:
        return None
    panel, inside = outer[-1], prod(sizes[len(turns) :])
    if static(stride(load, panel.var, analyzer)) != inside * width:
        return None
    share = -(-width // prod(sizes[: len(turns)]))

    def fetch(values: dict[Var, Expr]) -> Stmt:
        at: Expr = tirx.const(0, panel.var.expr_ty().dtype)
        for it in (*turns, *steps):
            at = at * it.extent + values[it.var]
        following = {**values, panel.var: values[panel.var] + 1} | {
            it.var: tirx.const(0, it.var.expr_ty().dtype) for it in steps
        }
        *indices, _ = (substitute(index, following) for index in load.indices)
        place = tirx.address_of(tirx.BufferLoad(load.source, [*indices, at * share]))
        return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", place, *_READ_TO_KEEP))

    return fetch
