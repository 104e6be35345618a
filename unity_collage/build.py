"""``relax.build`` as our programs are built."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline
from tvm.target import Target

from .passes.offload_byoc import EXTERNAL_MODS


def build(mod: IRModule, target: Target) -> relax.VMExecutable:
    """``relax.build`` in its compiled mode, which halves what a kernel call costs the VM.

    Compiled VM functions look external functions up below the generated code, but ``relax.build`` links
    ``external_mods`` beside it: here they are linked below.
    """
    external = mod.attrs.get(EXTERNAL_MODS, []) if mod.attrs else []
    pipeline = branching_pipeline() if has_branches(mod) else "default"
    executable = relax.build(
        mod.without_attr(EXTERNAL_MODS), target, relax_pipeline=pipeline, exec_mode="compiled"
    )
    (generated,) = executable.mod.imports
    for module in external:
        generated.import_module(module)
    return executable


def has_branches(mod: IRModule) -> bool:
    """Whether any function chooses between two computations while it runs."""
    found: list[relax.Expr] = []
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, found.append)
    return any(isinstance(expr, relax.If) for expr in found)


def branching_pipeline() -> tvm.transform.Sequential:
    """TVM's pipeline for CPUs without its memory planner.

    The planner takes the branches of an ``If`` for one sequence: what is allocated in the one is used in the other,
    where the process crashes.
    """
    steps = [
        *cpu_pipeline.library_dispatch_passes(None),
        *cpu_pipeline.legalize_passes(None),
        *cpu_pipeline.dataflow_lower_passes(None),
        *cpu_pipeline.finalize_passes(None),
    ]
    return tvm.transform.Sequential([step for step in steps if step.info.name != "StaticPlanBlockMemory"])
