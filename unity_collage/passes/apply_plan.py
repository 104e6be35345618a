"""ApplyPlan: outline the candidates that the caller has chosen.

Reads    ``collage.candidates``, from AnnotateCandidates.
Writes   ``collage.plan`` where there are costs; a private function for each chosen candidate
         (:mod:`unity_collage.lowering.apply`). Removes the attributes of the passes before.
Keeps    what the program computes; bindings that are in no chosen candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.ir import IRModule

from ..lowering.apply import Chosen, applied_module


@tvm.transform.module_pass(opt_level=0, name="collage.ApplyPlan")
@dataclass(frozen=True)
class ApplyPlan:
    """Make kernels of the chosen candidates; nothing is searched, and no costs are needed."""

    chosen: Chosen
    """Ids of candidates by the name of their function."""
    origin: str = "given"
    """Where the plan comes from: the ``algorithm`` in ``collage.plan``."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return applied_module(mod, self.chosen, self.origin)
