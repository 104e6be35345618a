"""The entry point that TVM loads: ``relax.build(mod, target, relax_pipeline="collage")`` needs no import of this
package.

``import tvm`` calls :func:`register`, which imports nothing of this package until the pipeline is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.relax.pipeline import register_pipeline

NAME = "collage"
"""The name of the pipeline for ``relax.build`` and ``relax.get_pipeline``."""


def register() -> None:
    """Add the pipeline to those of TVM. Programs that were loaded before return TVM's tensors from now on."""
    register_pipeline(NAME)(pipeline)
    if (results := sys.modules.get("unity_collage.calling.results")) is not None:
        results.let_numpy_read_tensors()


def pipeline(**options: Any) -> tvm.transform.Pass:
    """The pass that ``relax.get_pipeline`` gives; ``options`` are those of :func:`unity_collage.collage`."""
    return UntilBuild(options)


@tvm.transform.module_pass(opt_level=0, name="collage.UntilBuild")
@dataclass(frozen=True)
class UntilBuild:
    """All passes from an imported module to one that ``relax.build`` links.

    The target is the one in scope, or the host. Compiled VM functions do not find kernels of libraries in what
    ``relax.build`` links: with ``exec_mode="compiled"`` call :func:`unity_collage.link_external` on what it returns.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of :func:`unity_collage.collage`."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        from .errors import CollageError
        from .lowering.build import finish, lower
        from .pipeline import collage
        from .runtime.virtual_machine import PLACED
        from .target import current_target, target_of

        target = target_of(current_target())
        with target:
            lowered = lower(collage(**self.options)(mod), target)
            if any(gvar.name_hint == PLACED for gvar in lowered.functions):
                raise CollageError(
                    "kernels of several devices read constants, which relax.build puts on the first device: "
                    "unity_collage.compile makes the program"
                )
            return finish(lowered, target)(lowered)
