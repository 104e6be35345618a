"""Labelled sub-graphs inside of kernels as calls of libraries (:mod:`unity_collage.backends.library_calls`).

    before  @R.function(private=True)                           after   lv = R.nn.relu(x)
            def kernel(x, w):  # Primitive                              lv1 = R.call_tir(cls.matmul, (lv, w), ...)
                lv = R.nn.relu(x)                                       gv = R.exp(lv1)
                lv1 = cls.matmul(lv, w)  # Composite="blas.matmul"
                gv = R.exp(lv1)

TVM's FuseTIR then makes one PrimFunc of the kernel. It accepts operators and calls of PrimFuncs only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.ir import IRModule, Range

from .. import runtime
from ..backends.library_calls import LibraryCall, library_call
from ..backends.registry import known
from ..errors import CollageError
from ..graph.kinds import OpKind
from ..graph.shapes import dtype_of, shape_of
from ..runtime.vendors import VENDORS
from .outline import NameSupply, global_var

_BYTES = "uint8"


def with_library_calls(mod: IRModule) -> IRModule:
    """``mod`` where kernels call libraries for their sub-graphs with a registered label.

    Raises CollageError for a label without a call, and for sizes that are known only when the program runs.
    """
    known()  # registers the calls of our own backends
    names, made = NameSupply(mod), dict[ir.GlobalVar, ir.BaseFunc]()
    functions = {
        gvar: _calling(func, mod, names, made)
        if isinstance(func, relax.Function) and (func.attrs or {}).get("Primitive", 0)
        else func
        for gvar, func in mod.functions_items()
    }
    if not made:
        return mod
    called = _called({**functions, **made})
    kept = {gvar: func for gvar, func in functions.items() if gvar in called or not _is_labelled(func)}
    return IRModule({**kept, **made}, attrs=mod.attrs, global_infos=mod.global_infos)


def modules_called(mod: IRModule) -> list[Any]:
    """Empty modules of those of our native libraries that PrimFuncs call by name: a program with them loads these
    libraries where it runs."""
    prims = (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))
    found = dict.fromkeys(library for prim in prims for library in _libraries(prim))
    return [_empty(library) for library in found]


def _libraries(prim: tirx.PrimFunc) -> list[str]:
    """Those of our native libraries with functions that ``prim`` calls: ``collage.<library>.<function>``."""
    calls = (call for call in _nodes(prim.body, ir.Call) if call.op.same_as(_PACKED))
    names = [str(call.args[0].value).split(".") for call in calls]
    return [name[1] for name in names if name[0] == "collage" and name[1] in VENDORS]


def _empty(library: str) -> Any:
    runtime.load(library)
    return tvm_ffi.get_global_func(f"collage.{library}.create")('{"programs": []}', b"")


def _calling(
    func: relax.Function, mod: IRModule, names: NameSupply, made: dict[ir.GlobalVar, ir.BaseFunc]
) -> relax.Function:
    """The kernel ``func`` with calls of PrimFuncs, which are added to ``made``, for its labelled functions."""
    local: dict[relax.Var, relax.Function] = {}
    prims: dict[relax.Expr, ir.GlobalVar] = {}
    found: list[relax.Binding] = []
    for block in func.body.blocks:
        bindings: list[relax.Binding] = []
        for binding in block.bindings:
            if isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.Function):
                local[binding.var] = binding.value
                if library_call(_label(binding.value)) is not None:
                    continue
            bindings.append(_replaced(binding, mod, local, names, made, prims))
        found += bindings
    if not prims:
        return func
    body = relax.SeqExpr([relax.DataflowBlock(found)], func.body.body)  # FuseTIR wants one block of this kind
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def _replaced(
    binding: relax.Binding,
    mod: IRModule,
    local: Mapping[relax.Var, relax.Function],
    names: NameSupply,
    made: dict[ir.GlobalVar, ir.BaseFunc],
    prims: dict[relax.Expr, ir.GlobalVar],
) -> relax.Binding:
    value = binding.value
    if not isinstance(binding, relax.VarBinding) or not isinstance(value, relax.Call):
        return binding
    callee: Any = (
        local.get(value.op)
        if isinstance(value.op, relax.Var)
        else (mod.functions.get(value.op) if isinstance(value.op, ir.GlobalVar) else None)
    )
    if not isinstance(callee, relax.Function) or not (label := _label(callee)):
        return binding
    if (found := library_call(label)) is None:
        raise CollageError(
            f"a kernel of TVM calls a function labelled {label!r}, and no library call is registered for it: "
            "use uc.backends.register_library_call"
        )
    if value.op not in prims:
        name = names.fresh(found.label.replace(".", "_"))
        prim = _prim_func(callee, found, name)
        prims[value.op] = global_var(name, prim)
        made[prims[value.op]] = prim
    results: Any = list(value.ty.fields) if isinstance(value.ty, relax.TupleType) else value.ty
    called = relax.call_tir(prims[value.op], relax.Tuple(list(value.args)), out_ty=results)
    return relax.VarBinding(binding.var, called)


def _prim_func(func: relax.Function, call: LibraryCall, name: str) -> tirx.PrimFunc:
    """One opaque block that makes the call: what ``te.extern`` is, on buffers that FuseTIR can replace."""
    results = list(func.ret_ty.fields) if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    ins = [_buffer(param.ty, param.name, name) for param in func.params]
    outs = [_buffer(ty, f"result{number}", name) for number, ty in enumerate(results)]
    nbytes = call.workspace(func)
    workspace = [_plain([nbytes], _BYTES, "workspace")] if nbytes else []
    made = call.shim(ins, outs, workspace[0] if workspace else None)
    body = made if isinstance(made, tirx.Stmt) else tirx.Evaluate(made)
    writes = [_whole(buffer) for buffer in (*outs, *workspace)]
    block = s_tir.SBlock([], [_whole(buffer) for buffer in ins], writes, name, body)
    root = s_tir.SBlock(
        [], [], [], "root", s_tir.SBlockRealize([], True, block), alloc_buffers=list(workspace)
    )
    prim = tirx.PrimFunc([*ins, *outs], s_tir.SBlockRealize([], True, root))
    for library in _libraries(prim):
        runtime.load(library)
    return prim.with_attrs({"s_tir": True, "op_pattern": int(OpKind.OPAQUE)})


def _buffer(ty: ir.Type, hint: str, name: str) -> Any:
    shape = shape_of(ty)
    if shape is None:
        raise CollageError(f"{name}: a library call inside a kernel needs tensors of fixed sizes, not {ty}")
    return _plain(shape, dtype_of(ty), hint)


def _plain(shape: Any, dtype: str, name: str) -> Any:
    row_major: Any = None
    return tirx.decl_buffer([tirx.const(extent, "int64") for extent in shape], dtype, name, layout=row_major)


def _whole(buffer: Any) -> Any:
    zero = tirx.const(0, "int64")
    return tirx.BufferRegion(buffer, [Range.from_min_extent(zero, extent) for extent in buffer.shape])


def _label(func: relax.Function) -> str:
    return str((func.attrs or {}).get("Composite", ""))


def _is_labelled(func: ir.BaseFunc) -> bool:
    return isinstance(func, relax.Function) and library_call(_label(func)) is not None


def _called(functions: Mapping[ir.GlobalVar, ir.BaseFunc]) -> set[ir.GlobalVar]:
    return {
        gvar
        for func in functions.values()
        if isinstance(func, relax.Function)
        for gvar in _nodes(func.body, ir.GlobalVar)
    }


def _nodes(root: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, found.append))
    return found


_PACKED = ir.Op.get("tirx.tvm_call_packed")
