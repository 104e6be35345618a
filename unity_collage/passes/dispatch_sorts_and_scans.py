"""DispatchSortsAndScans: TVM's kernels for what it legalizes by the target: sorts, sums along an axis, the k largest.

Reads    operators of ``unity_collage.graph.kinds.LEGALIZED_BY_TARGET``.
Writes   calls of PrimFuncs in their place, for the target in scope.
Keeps    everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.ir import IRModule

from ..lowering.sorts_and_scans import dispatched


@tvm.transform.module_pass(opt_level=0, name="collage.DispatchSortsAndScans")
@dataclass(frozen=True)
class DispatchSortsAndScans:
    """``relax.backend.DispatchSortScan`` with kernels whose script parses back."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return dispatched(mod)
