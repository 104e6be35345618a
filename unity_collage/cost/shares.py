"""Shares: each variant of a model, and the function for all other sizes, gets a part of the time for measuring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from tvm import ir
from tvm.ir import IRModule

from ..graph.variants import is_switch, like_of, range_of, sizes_of
from .model import CostModel

_FIRST = 0.4
"""The part of the time that the first variant gets, the smallest one, which is the most likely."""

_SECOND = 0.3
"""The part that the function for all other sizes gets, which may take the place of all variants."""

_LEAST = 0.1
"""The least part of a further variant: with less of it, few of its kernels would be measured."""

_BEFORE_WEIGHING = 0.85
"""The part of the time that all have together, if the plan for other sizes is weighed over samples after them."""


def with_shares(mod: IRModule, model: CostModel, change: Callable[[ir.BaseFunc], ir.BaseFunc]) -> IRModule:
    """``mod`` with each function changed by ``change``, which asks ``model``; each has its share.

    The smallest variant comes first, then the function for all other sizes, then the other variants from large to
    small: the plan for a large size differs most from that of the smallest. Time that one does not use is for those
    after it. The last of many variants get what the others leave; without it the function for all sizes runs there.
    """
    functions = dict(mod.functions_items())
    variants = sorted(
        (gvar for gvar, func in functions.items() if sizes_of(func)),
        key=lambda gvar: math.prod(sizes_of(functions[gvar]).values()),
    )
    others = [gvar for gvar, func in functions.items() if like_of(func) and not sizes_of(func)]
    whole = (
        _BEFORE_WEIGHING
        if any(range_of(func) and not is_switch(func) for func in functions.values())
        else 1.0
    )
    shares = {gvar: whole * part for gvar, part in _shares([*variants[:1], *others, *reversed(variants[1:])])}
    for gvar in [*shares, *(gvar for gvar in functions if gvar not in shares)]:
        with model.sharing(shares.get(gvar, 1.0)):
            functions[gvar] = change(functions[gvar])
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _shares(functions: list[ir.GlobalVar]) -> Iterator[tuple[ir.GlobalVar, float]]:
    """The functions, and the part of all time that is over when each has had its share."""
    begin = _FIRST + _SECOND
    each = max((1 - begin) / max(len(functions) - 2, 1), _LEAST)
    for place, gvar in enumerate(functions):
        end = _FIRST if place == 0 else begin + each * (place - 1)
        yield gvar, 1.0 if place == len(functions) - 1 else min(1.0, end)
