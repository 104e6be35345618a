"""The key of a program's measurements in the database: its digest, and the backends of its kernels."""

from __future__ import annotations

from tvm import relax
from tvm.ir import IRModule
from tvm_ffi import structural_hash

from ..annotations import PLAN


def planned_backends(mod: IRModule) -> set[str]:
    """The backends of the kernels in the plans of a final module."""
    return {kernel.backend for plan in PLAN.by_function(mod).values() for kernel in plan.kernels}


def program_digest(mod: IRModule) -> str:
    """A digest of the functions of a module: of their bindings in order, without attributes."""
    functions = {
        gvar: relax.Function(func.params, func.body, func.ret_ty, func.is_pure)
        if isinstance(func, relax.Function)
        else func
        for gvar, func in mod.functions_items()
    }
    return f"{structural_hash(IRModule(functions, global_infos=mod.global_infos)) % (1 << 64):016x}"
