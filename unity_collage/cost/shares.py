"""Shares: each variant of a model, and the function for all other sizes, gets a part of the time for measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvm import ir
from tvm.ir import IRModule

from ..graph.variants import is_switch, like_of, range_of, sizes_of
from .model import CostModel

_FIRST = 0.5
"""The part of the time that the first variant gets, the smallest one, which is the most likely."""

_SECOND = 0.3
"""The part that the function for all other sizes gets, which may take the place of all variants."""

_BEFORE_WEIGHING = 0.85
"""The part of the time that all have together, if the plan for other sizes is weighed over samples after them."""


def with_shares(mod: IRModule, model: CostModel, change: Callable[[ir.BaseFunc], ir.BaseFunc]) -> IRModule:
    """``mod`` with each function changed by ``change``, which asks ``model``; variants in order, each with its share.

    Time that one does not use is for those after it. The function for all other sizes comes second.
    """
    functions = dict(mod.functions_items())
    variants = [gvar for gvar, func in functions.items() if sizes_of(func)]
    others = [gvar for gvar, func in functions.items() if like_of(func) and not sizes_of(func)]
    whole = (
        _BEFORE_WEIGHING
        if any(range_of(func) and not is_switch(func) for func in functions.values())
        else 1.0
    )
    shares = {gvar: whole * part for gvar, part in _shares([*variants[:1], *others, *variants[1:]])}
    for gvar in [*shares, *(gvar for gvar in functions if gvar not in shares)]:
        with model.sharing(shares.get(gvar, 1.0)):
            functions[gvar] = change(functions[gvar])
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _shares(functions: list[ir.GlobalVar]) -> Iterator[tuple[ir.GlobalVar, float]]:
    """The functions, and the part of all time that is over when each has had its share."""
    later = len(functions) - 2
    left = 1 - _FIRST - _SECOND
    ends = [_FIRST, _FIRST + _SECOND, *(1 - left * (1 - (place + 1) / later) for place in range(later))]
    for place, gvar in enumerate(functions):
        yield gvar, 1.0 if place == len(functions) - 1 else ends[place]
