"""Contract: an instrument that checks the promises of every pass of this package.

A pass does not change its input, and its output is well-formed. The script of an output parses back to it, unless it is
the input. Each plan of a search passes the checker of plans.

TVM's parser takes about 20 ms for a line, so nothing is parsed that was parsed before: most passes write attributes
and keep the bindings.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule
from tvm.ir.instrument import pass_instrument

from ..annotations import COSTS, PLAN
from ..passes.search_partition import checked_for
from ..plan.check import checked
from ..plan.check_ranges import why_range_does_not_hold
from ..plan.plan import Plan


@pass_instrument
class Contract:
    """Use as ``tvm.transform.PassContext(instruments=[Contract()])``; a broken promise raises AssertionError."""

    def __init__(self) -> None:
        self._before: list[tuple[IRModule, str]] = []

    def run_before_pass(self, mod: IRModule, info: Any) -> None:
        if info.name.startswith("collage."):
            self._before.append((mod, mod.script(show_meta=True)))

    def run_after_pass(self, mod: IRModule, info: Any) -> None:
        if not info.name.startswith("collage."):
            return
        before, text = self._before.pop()
        assert before.script(show_meta=True) == text, f"{info.name} has edited its input"
        assert relax.analysis.check_well_formed(mod), f"{info.name} leaves a module that is not well-formed"
        why = None if mod.same_as(before) else why_no_round_trip(mod)
        assert why is None, f"{info.name}: {why}"
        if info.name == "collage.ChooseVariants":
            reason = why_range_fails(mod)
            assert reason is None, f"{info.name}: {reason}"
        if info.name == "collage.SearchPartition":
            for name, plan in PLAN.by_function(mod).items():
                reason = why_plan_fails(before, name, plan)
                assert reason is None, f"{info.name}: the plan of {name} {reason}"


def why_plan_fails(before: IRModule, name: str, plan: Plan) -> str | None:
    """Why the checker refuses the plan that a search has made of a function of ``before``, or None.

    The problem is built again from the annotations, which lack the costs that the search itself asked for.
    """
    searched = before[name] if name in _names(before) else None
    if isinstance(searched, relax.Function) and COSTS.on(searched) and plan.problem:
        finding = checked_for(searched, plan)
    else:
        finding = checked(plan)
    return None if finding.holds else finding.text


def why_range_fails(mod: IRModule) -> str | None:
    """Why the checker refuses what ``main`` claims about its sizes, or None."""
    plans = PLAN.by_function(mod)
    if "main" not in plans or plans["main"].range is None:
        return None
    fails = {name: not checked(plan).holds for name, plan in plans.items()}
    return why_range_does_not_hold(plans, "main", fails, lambda _: None)


def _names(mod: IRModule) -> set[str]:
    return {gvar.name_hint for gvar in mod.get_global_vars()}


def why_no_round_trip(mod: IRModule) -> str | None:
    """Why the script of ``mod`` does not parse back to an equal module, or None.

    The attributes of this package are parsed apart from the functions that have them. Runtime modules compare by
    identity, so modules that contain some must have equal text instead.
    """
    return next(filter(None, map(_why_not_parsed_back, _parts(mod))), None)


def _parts(mod: IRModule) -> Iterator[IRModule]:
    """``mod`` without the attributes of this package, then a module for each of these attributes."""
    bare = mod.clone()
    attributes = [
        (gvar, name, value)
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function) and func.attrs
        for name, value in func.attrs.items()
        if name.startswith("collage.")
    ]
    for gvar, name, _ in attributes:
        bare[gvar] = bare[gvar].without_attr(name)
    yield bare
    yield from (IRModule({"main": _identity().with_attr(name, value)}) for _, name, value in attributes)


@lru_cache(maxsize=1)
def _identity() -> relax.Function:
    """The function that carries an attribute."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(x)
    return builder.get()["main"]


_MOST_PARSED = 64
_parsed: OrderedDict[str, IRModule | None] = OrderedDict()
"""Modules that parsed back, by a digest of their text; the one used longest ago comes first. None stands for one with
runtime modules.
"""


def _why_not_parsed_back(mod: IRModule) -> str | None:
    """:func:`why_no_round_trip` without parts: one text parses to one module, which is compared again."""
    text = mod.script(show_meta=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    holds_runtime_modules = "external_mods" in (mod.attrs or {})
    if digest in _parsed and (holds_runtime_modules or tvm_ffi.structural_equal(mod, _parsed[digest])):
        _parsed.move_to_end(digest)
        return None
    back = tvm.script.from_source(text)
    if holds_runtime_modules:
        reason = None if back.script() == mod.script() else "the script parses back to another text"
    else:
        reason = None if tvm_ffi.structural_equal(mod, back) else "the script parses back to another module"
    if reason is None:
        _parsed[digest] = None if holds_runtime_modules else mod
        if len(_parsed) > _MOST_PARSED:
            _parsed.popitem(last=False)
    return reason
