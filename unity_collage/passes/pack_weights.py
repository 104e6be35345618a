"""PackWeights: constants that a kernel reads in panels are stored in panels.

Reads    kernels that are not scheduled yet, and the calls of them.
Writes   kernels over packed weights, and the packed constants in their calls.
Keeps    every kernel that somebody calls with a variable in place of the weights, or calls from outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.ir import IRModule
from tvm.target import Target

from ..lowering.pack_weights import packed
from ..target import current_target


@tvm.transform.module_pass(opt_level=0, name="collage.PackWeights")
@dataclass(frozen=True)
class PackWeights:
    """Store the constant operands of products and convolutions in the order in which they will be read."""

    target: Target | None = None
    """The processor that the kernels will be scheduled for; the target in scope, or the host, when not given."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return packed(mod, self.target or current_target())
