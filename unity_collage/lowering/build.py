"""``relax.build`` as our programs are built: lowered, then linked."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline
from tvm.target import Target

EXTERNAL_MODS = "external_mods"
"""Attribute of a module: the runtime modules whose functions it calls."""


def build(mod: IRModule, target: Target) -> relax.VMExecutable:
    """``relax.build`` in its compiled mode, which halves what a kernel call costs the VM."""
    return link(lower(mod, target), target)


def lower(mod: IRModule, target: Target) -> IRModule:
    """The first half of TVM's pipeline for CPUs: every kernel is called with its destination, no memory is planned."""
    steps = [
        *cpu_pipeline.library_dispatch_passes(target),
        *cpu_pipeline.legalize_passes(target),
        *cpu_pipeline.dataflow_lower_passes(target),
    ]
    with target:
        return tvm.transform.Sequential(steps)(mod)


def link(lowered: IRModule, target: Target) -> relax.VMExecutable:
    """The second half, and the executable.

    Compiled VM functions look external functions up below the generated code, but ``relax.build`` links
    ``external_mods`` beside it: here they are linked below. Modules of generated code (C source, objects) become one
    with the library when it is exported, and are not below anything then: they need the VM's bytecode, which looks
    everywhere. TVM's memory planner takes the branches of an ``If`` for one sequence: what is allocated in the one is
    used in the other, where the process crashes. So it is left out then.
    """
    external = lowered.attrs.get(EXTERNAL_MODS, []) if lowered.attrs else []
    plans_memory = not has_branches(lowered)
    steps = [
        step
        for step in cpu_pipeline.finalize_passes(target)
        if plans_memory or step.info.name != "StaticPlanBlockMemory"
    ]
    finish = tvm.transform.Sequential(steps)
    if any(module.is_compilation_exportable() for module in external):
        return relax.build(lowered, target, relax_pipeline=finish, exec_mode="bytecode")
    executable = relax.build(
        lowered.without_attr(EXTERNAL_MODS), target, relax_pipeline=finish, exec_mode="compiled"
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
