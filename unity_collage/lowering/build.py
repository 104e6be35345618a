"""Builds a program in two halves: lower and link."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline
from tvm.target import Target

from ..legalization import legalize_ops
from .unknown_shapes import refuse_unknown_shapes

EXTERNAL_MODS = "external_mods"
"""Attribute of a module: the runtime modules that contain functions it calls."""


def build(mod: IRModule, target: Target) -> relax.VMExecutable:
    """``relax.build`` in compiled mode, which halves the VM's overhead of a kernel call."""
    return link(lower(mod, target), target)


def lower(mod: IRModule, target: Target) -> IRModule:
    """The first half of TVM's pipeline for CPUs: kernels are called with their destinations, memory is not planned."""
    refuse_unknown_shapes(mod)
    steps = [
        *cpu_pipeline.library_dispatch_passes(target),
        legalize_ops(),
        *cpu_pipeline.legalize_passes(target),
        *cpu_pipeline.dataflow_lower_passes(target),
    ]
    with target:
        return tvm.transform.Sequential(steps)(mod)


def link(lowered: IRModule, target: Target) -> relax.VMExecutable:
    """The second half of the pipeline, and the executable.

    Compiled VM functions look up external functions among the imports of the generated code. ``relax.build`` links
    ``external_mods`` next to it, so here they are imported by it. Modules of generated code (C source, objects) are
    merged into an exported library. Compiled functions would not find them, so the program is bytecode then.
    """
    external = lowered.attrs.get(EXTERNAL_MODS, []) if lowered.attrs else []
    steps = finish(lowered, target)
    if any(module.is_compilation_exportable() for module in external):
        return relax.build(lowered, target, relax_pipeline=steps, exec_mode="bytecode")
    executable = relax.build(
        lowered.without_attr(EXTERNAL_MODS), target, relax_pipeline=steps, exec_mode="compiled"
    )
    (generated,) = executable.mod.imports
    for module in external:
        generated.import_module(module)
    return executable


def finish(lowered: IRModule, target: Target) -> tvm.transform.Sequential:
    """The second half of TVM's pipeline for CPUs: memory is planned, and the VM's calls are written.

    TVM's memory planner handles the branches of an ``If`` as one sequence: a branch may use memory that was allocated
    in the other one, and crashes. So memory is not planned for such programs.
    """
    plans_memory = not has_branches(lowered)
    return tvm.transform.Sequential(
        [
            step
            for step in cpu_pipeline.finalize_passes(target)
            if plans_memory or step.info.name != "StaticPlanBlockMemory"
        ]
    )


def has_branches(mod: IRModule) -> bool:
    """Whether any function contains an ``If``."""
    found: list[relax.Expr] = []
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, found.append)
    return any(isinstance(expr, relax.If) for expr in found)
