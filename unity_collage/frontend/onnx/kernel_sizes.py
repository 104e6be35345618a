"""Gives symbolic sizes of kernels names that no other function has: in a script, TVM takes equal names for one size."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule


def with_named_sizes(mod: IRModule) -> IRModule:
    """``mod`` with the name of each kernel in front of the names of its sizes, so that its script parses back."""
    functions = {
        gvar: _named(gvar.name_hint, func) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _named(kernel: str, func: tirx.PrimFunc) -> tirx.PrimFunc:
    shapes = (getattr(_tensor(param), "shape", ()) for param in func.params)
    sizes = {var for shape in shapes for dim in shape for var in tirx.analysis.undefined_vars(dim)}
    fresh = {var: tirx.Var(f"{kernel}_{var.name}", var.ty) for var in sizes}
    return tvm_ffi.structural_map(func, (tirx.Var, lambda var: fresh.get(var, var))) if fresh else func


def _tensor(param: Any) -> Any:
    """A parameter's type if that has a shape, else the parameter: a buffer has a shape itself."""
    return param.ty if hasattr(param.ty, "shape") else param
