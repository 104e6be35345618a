"""Builds a program in two halves: lower and link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline
from tvm.relax.backend.cuda import pipeline as cuda_pipeline
from tvm.target import Target

from ..annotations import EXTERNAL_MODS as EXTERNAL_MODS
from ..graph.calls import op_name
from ..graph.devices import legalized_on_devices, with_listed_devices
from ..graph.in_place import IN_PLACE
from ..legalization import legalize_ops
from ..plan.memory import PlanMemory
from ..target import is_cuda, with_host
from . import nvrtc
from .empty_constants import with_readable_constants
from .gpu_kernels import bound_kernels, refuse_unbuilt
from .kernel_targets import with_kernel_targets
from .library_calls import modules_called
from .linked import linked_executable
from .live_memory import RecordMemory, with_memory
from .noted_calls import with_noted_calls
from .packed_in_place import with_changed_operands
from .places import MemoryByDevice, with_placed_constants, without_devices_of_calls
from .shape_switch import ShapeSwitch
from .shared_memory import ShareMemory, with_shared_memory
from .shared_shapes import ShareShapes
from .shared_storages import ShareStorages
from .size_classes import RoundStorages
from .sizes_first import with_sizes_first
from .sorts_and_scans import dispatched
from .staging import staged
from .unknown_shapes import refuse_unknown_shapes

_USE_GRAPHS = "relax.backend.use_cuda_graph"


def build(mod: IRModule, target: Target) -> relax.VMExecutable:
    """``relax.build``; programs for CPUs in compiled mode, which halves the VM's overhead of a kernel call."""
    return link(lower(mod, target), target)


def lower(mod: IRModule, target: Target) -> IRModule:
    """The first half of TVM's pipeline: kernels are called with their destinations, memory is not planned."""
    refuse_unknown_shapes(mod)
    if is_cuda(target):
        return _lowered_for_cuda(mod, with_host(target))
    with target:
        listed = with_shared_memory(with_listed_devices(mod))
        libraries = tvm.transform.Sequential(cpu_pipeline.library_dispatch_passes(target))(dispatched(listed))
        legal = legalized_on_devices(libraries, legalize_ops())
        scheduled = tvm.transform.Sequential(_foldable(cpu_pipeline.legalize_passes(target), mod))(legal)
        kernels = with_kernel_targets(with_sizes_first(with_readable_constants(scheduled)), target)
        placed = with_placed_constants(kernels)
        named = with_changed_operands(placed)
        lowered = tvm.transform.Sequential(cpu_pipeline.dataflow_lower_passes(target))(named)
        return without_devices_of_calls(lowered)


def _lowered_for_cuda(mod: IRModule, target: Target) -> IRModule:
    """:func:`lower` for a GPU: kernels that are not scheduled yet are bound to its threads.

    Raises CollageError for a kernel that cannot be bound.
    """
    fuse = [
        *cuda_pipeline.library_dispatch_passes(target),
        legalize_ops(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
    ]
    with target:
        fused = tvm.transform.Sequential(_foldable(fuse, mod))(mod)
        kernels = bound_kernels(staged(fused) if why_no_graph(fused) is None else fused, target)
        refuse_unbuilt(kernels, target)
        named = with_changed_operands(kernels)
        return tvm.transform.Sequential(cuda_pipeline.dataflow_lower_passes(target))(named)


def _foldable(steps: Sequence[tvm.transform.Pass], mod: IRModule) -> list[tvm.transform.Pass]:
    """``steps`` without FoldConstant where ``mod`` changes memory in place: it would make zeros in it a constant."""
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    changes = any(op_name(expr) in IN_PLACE for func in functions for expr in _expressions(func))
    return [step for step in steps if not changes or step.info.name != "FoldConstant"]


def link(lowered: IRModule, target: Target) -> relax.VMExecutable:
    """The second half of the pipeline, and the executable.

    Compiled VM functions look up external functions among the imports of the generated code. ``relax.build`` links
    ``external_mods`` next to it, so here they are imported by it. Modules of generated code (C source, objects) are
    merged into an exported library. Compiled functions would not find them, so the program is bytecode then. It is
    bytecode on a GPU too, where launches do not wait for the VM.
    """
    external = list(lowered.attrs.get(EXTERNAL_MODS, [])) if lowered.attrs else []
    external += modules_called(lowered)
    memory: dict[str, PlanMemory] = {}
    steps = finish(lowered, target, RecordMemory(target, external, memory))
    executable = with_memory(_linked(lowered, target, external, steps), memory)
    return with_noted_calls(executable, lowered)


def _linked(
    lowered: IRModule, target: Target, external: Sequence[Any], steps: tvm.transform.Sequential
) -> relax.VMExecutable:
    if is_cuda(target):
        nvrtc.register()
        with with_host(target) as scope:
            return relax.build(lowered, scope, relax_pipeline=steps, exec_mode="bytecode")
    if any(module.is_compilation_exportable() for module in external):
        return relax.build(lowered, target, relax_pipeline=steps, exec_mode="bytecode")
    with target:
        finished = steps(lowered.without_attr(EXTERNAL_MODS))
    return linked_executable(finished, external, target)


def finish(
    lowered: IRModule, target: Target, record: tvm.transform.Pass | None = None
) -> tvm.transform.Sequential:
    """The second half of TVM's pipeline: memory is planned, noted by ``record``, and the VM's calls are written.

    TVM's memory planner handles the branches of an ``If`` as one sequence: a branch may use memory that was allocated
    in the other one, and crashes. So memory is not planned where a branch allocates. Branches that only call other
    functions, as Prepare makes them, allocate nothing. On a GPU the kernels of a program with planned memory are
    captured in a CUDA graph.
    """
    pipeline = cuda_pipeline if is_cuda(target) else cpu_pipeline
    left_out = set[str]()
    if any(map(_allocates, _branches(lowered))):
        left_out.add("StaticPlanBlockMemory")
    if why_no_graph(lowered) is not None:
        left_out.add("RewriteCUDAGraph")
    steps = [step for step in pipeline.finalize_passes(target) if step.info.name not in left_out]
    wrapped = {
        "RewriteCUDAGraph": _WithGraphs,
        "StaticPlanBlockMemory": MemoryByDevice,
        "VMShapeLower": lambda step: ShareShapes(ShapeSwitch(step)),
    }
    made = [wrapped.get(step.info.name, _same)(step) for step in steps]
    kill = [step.info.name for step in steps].index("KillAfterLastUse")
    made[kill : kill + 1] = [
        *([] if is_cuda(target) else [ShareStorages()]),
        RoundStorages(),
        ShareMemory(),
        made[kill],
        *([] if record is None else [record]),
    ]
    return tvm.transform.Sequential(made)


def _same(step: tvm.transform.Pass) -> tvm.transform.Pass:
    return step


@tvm.transform.module_pass(opt_level=0, name="RewriteCUDAGraph")
@dataclass(frozen=True)
class _WithGraphs:
    """TVM's pass of this name, which does nothing unless an option says so."""

    step: tvm.transform.Pass

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        config = {**tvm.transform.PassContext.current().config, _USE_GRAPHS: True}
        with tvm.transform.PassContext(config=config):
            return self.step(mod)


def why_no_graph(mod: IRModule) -> str | None:
    """Why the kernels of a program are not captured in a CUDA graph, which has fixed sizes and no branches; or None."""
    if has_branches(mod):
        return "it has branches"
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    if any(relax.analysis.defined_symbolic_vars(func) for func in functions):
        return "it has symbolic shapes"
    return None


def has_branches(mod: IRModule) -> bool:
    """Whether any function contains an ``If``."""
    return any(True for _ in _branches(mod))


def _branches(mod: IRModule) -> Iterator[relax.Expr]:
    """The branches of all functions."""
    for func in mod.functions.values():
        for expr in _expressions(func) if isinstance(func, relax.Function) else ():
            if isinstance(expr, relax.If):
                yield from (expr.true_branch, expr.false_branch)


def _allocates(branch: relax.Expr) -> bool:
    """Whether a branch allocates tensors itself."""
    return any(
        isinstance(expr, relax.Call) and op_name(expr) == "relax.builtin.alloc_tensor"
        for expr in _expressions(branch)
    )


def _expressions(root: relax.Expr) -> list[relax.Expr]:
    found: list[relax.Expr] = []
    relax.analysis.post_order_visit(root, found.append)
    return found
