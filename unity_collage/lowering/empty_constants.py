"""Constants without elements, in a form that a loaded program can read."""

from __future__ import annotations

import tvm_ffi
from tvm import ir, relax
from tvm.ir import IRModule
from tvm.relax.expr_functor import PyExprMutator, mutator


def with_readable_constants(mod: IRModule) -> IRModule:
    """``mod`` with new tensors in place of constants without elements.

    TVM's reader of a saved constant takes one without elements for a short file, unless its first axis is empty.
    """
    functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
    for gvar, func in mod.functions_items():
        if isinstance(func, relax.Function) and _has_any(func):
            func = _Readable(mod).visit_expr(func)
            assert isinstance(func, relax.Function)
        functions[gvar] = func
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _has_any(func: relax.Function) -> bool:
    found: list[ir.GenericConst] = []
    tvm_ffi.structural_walk(func, (ir.GenericConst, found.append))
    return any(map(_is_unreadable, found))


def _is_unreadable(constant: ir.GenericConst) -> bool:
    shape = constant.value.shape
    return 0 in shape and shape[0] != 0


@mutator
class _Readable(PyExprMutator):
    def visit_generic_const_(self, constant: ir.GenericConst) -> relax.Expr:
        if not _is_unreadable(constant):
            return constant
        shape = relax.ShapeExpr([int(size) for size in constant.value.shape])
        return self.builder_.emit(relax.op.builtin.alloc_tensor(shape, str(constant.value.dtype), 0))
