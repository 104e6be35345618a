"""TVM's own fusion for what no library takes, then a schedule for every kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import tvm
from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.target import Target

from ..annotations import SCHEDULES, THREADS, threads_of
from ..graph import OpKind
from ..graph.devices import legalized_on_devices
from ..graph.prim_funcs import SCHEDULED
from ..legalization import legalize_ops
from ..rewrites.flat_casts import with_flat_casts
from ..schedule import scheduled_module
from ..schedule.tuned import with_tuned_schedules
from ..target import is_cuda
from . import nvrtc
from .gpu_kernels import bound_kernels
from .kernel_targets import with_kernel_targets
from .library_calls import with_library_calls
from .own_sizes import with_named_extents, with_own_sizes
from .pack_weights import packed
from .set_apart import final_kernels, with_set_apart
from .sizes_first import with_sizes_first
from .small_constants import with_filled_constants
from .sorts_and_scans import dispatched
from .tuned_layouts import with_free_layouts, with_stored_layouts
from .unknown_shapes import refuse_unknown_shapes


def fused(mod: IRModule, target: Target, *, schedule: bool = True, pack: bool = True) -> IRModule:
    """``mod`` with TVM kernels for private functions with ``Primitive`` and for loose operators.

    Such a function becomes exactly one kernel, which keeps its ``collage.threads``; TVM fuses loose operators. Kernels
    get the schedules of ``collage.schedules``, else ours. Without ``schedule`` they keep TVM's naive loops, for another
    scheduler or tuner. With ``pack``, constant weights are stored in the order in which the scheduled kernels read
    them; those of tuned schedules always are. Tuned schedules and stored constants are for CPUs only. Calls into
    libraries and ``external_mods`` do not change.
    """
    refuse_unknown_shapes(mod)
    with target:
        kernels = _legalized(with_library_calls(mod))
    if not schedule:
        return kernels
    if is_cuda(target):
        nvrtc.register()
        return bound_kernels(kernels, target)
    tuned = _tuned(with_kernel_targets(kernels, target))
    return scheduled_module(packed(tuned, target) if pack else tuned, target)


def _tuned(mod: IRModule) -> IRModule:
    """``mod`` with the schedules of ``collage.schedules``, and constants in the layouts that these want."""
    if not mod.attrs or SCHEDULES not in mod.attrs:
        return mod
    return with_stored_layouts(with_tuned_schedules(with_free_layouts(mod)))


def _legalized(mod: IRModule) -> IRModule:
    """``mod`` with TVM's unscheduled kernels for the target in scope; views (reshape) stay views."""
    mod = with_set_apart(mod)
    limits = {gvar.name_hint: threads_of(func) for gvar, func in mod.functions_items()}
    final = final_kernels(mod)
    passes = [
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
        relax.transform.DeadCodeElimination(),
    ]
    kernels = _each_function(mod, lambda func: with_filled_constants(func) if _is_kernel(func) else func)
    lowered = legalized_on_devices(dispatched(kernels), legalize_ops())
    legal = _each_function(tvm.transform.Sequential(passes)(lowered), with_flat_casts)
    legal = with_named_extents(
        with_own_sizes(legal)
    )  # of casts that read only variables: TVM's passes nest calls in them
    return _attributed(with_sizes_first(legal), limits, final)


def _each_function(mod: IRModule, change: Callable[[relax.Function], relax.Function]) -> IRModule:
    functions = {
        gvar: change(func) if isinstance(func, relax.Function) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _is_kernel(func: relax.Function) -> bool:
    return bool((func.attrs or {}).get("Primitive", 0))


def _attributed(mod: IRModule, limits: Mapping[str, int | None], final: Collection[str]) -> IRModule:
    """``mod`` with the attributes on its kernels that FuseTIR drops.

    These are ``collage.threads``, and ``tirx.is_scheduled`` for those in ``final``.
    """
    functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
    for gvar, func in mod.functions_items():
        if (threads := limits.get(gvar.name_hint)) is not None:
            func = func.with_attr(THREADS, threads)
        if gvar.name_hint in final and isinstance(func, tirx.PrimFunc):
            func = func.with_attrs({SCHEDULED: True, "op_pattern": int(OpKind.OPAQUE)})
        functions[gvar] = func
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
