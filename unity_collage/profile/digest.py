"""Under which name what a program has shown is kept."""

from __future__ import annotations

from tvm import relax
from tvm.ir import IRModule
from tvm_ffi import structural_hash


def program_digest(mod: IRModule) -> str:
    """Of the bindings of a module and their order, whatever its attributes say of them."""
    functions = {
        gvar: relax.Function(func.params, func.body, func.ret_ty, func.is_pure)
        if isinstance(func, relax.Function)
        else func
        for gvar, func in mod.functions_items()
    }
    return f"{structural_hash(IRModule(functions)) % (1 << 64):016x}"
