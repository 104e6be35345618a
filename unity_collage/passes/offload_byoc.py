"""OffloadBYOC: turn functions for libraries into calls of runtime modules.

Reads    private functions with attribute ``Codegen``, from SearchPartition or from TVM's own passes.
Writes   ``R.call_dps_packed`` in place of their calls; the modules of code generators, appended to ``external_mods``;
         the constants that modules ask for when they are loaded (``const_name_to_constant``).
Keeps    everything else, earlier ``external_mods`` too; functions of code generators that are not registered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm
from tvm.ir import IRModule

from ..lowering.offload import Options, offloaded_module


@tvm.transform.module_pass(opt_level=0, name="collage.OffloadBYOC")
@dataclass(frozen=True)
class OffloadBYOC:
    """Run each backend's code generator once, over all of its functions."""

    options: Options = field(default_factory=dict)
    """The options of each code generator, by backend. Those that a kernel was measured with count more
    (:mod:`unity_collage.backends.options`)."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return offloaded_module(mod, self.options)
