"""PlaceByPattern: place calls that match a pattern or a predicate on a device, as hints for PlanDevices.

Reads    the operators, and the VDevices of the module.
Writes   ``R.hint_on_device`` on operands, or on the result of what has none.
Keeps    what is computed, functions of backends, and functions that are on one device by an attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm.ir import IRModule

from ..devices.by_pattern import Selector, placed
from ..devices.table import Named


@tvm.transform.module_pass(opt_level=0, name="collage.PlaceByPattern")
@dataclass(frozen=True)
class PlaceByPattern:
    """``PlaceByPattern([(is_op("relax.matmul")(wildcard(), wildcard()), "llvm:1")])`` puts all products on ``llvm:1``.

    Hints stand on the operands of a match, so that it is computed there. What reads its result follows it, unless
    ``others`` says where else. Run PlanDevices afterwards.
    """

    rules: Sequence[tuple[Selector, Named]] = ()
    """Patterns of ``tvm.relax.dpl``, or predicates of a call, each with a device; the first match holds."""
    others: Named | None = None
    """The device for calls that match no rule and read results of matches; None: they follow the match."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return placed(mod, self.rules, self.others)
