"""Branches of an ``If`` as private functions: they become kernels as other functions do, and memory can be planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.relax.analysis.analysis import contains_impure_call

from ..graph.in_place import ChangedMemory, changed_params


def with_branches_outlined(mod: IRModule, chosen: Mapping[ir.GlobalVar, relax.Function]) -> IRModule:
    """``mod`` with every branch in the ``chosen`` functions as a call of a private function.

    A branch stays where it is one value or one call of a function. It also stays where it has effects, such as
    printing, or reads a number that is no size. So does a branch that changes memory which it has not made.
    """
    builder = relax.BlockBuilder(mod)
    for gvar, func in chosen.items():
        outliner = _Outliner(builder, gvar.name_hint, mod)
        body = outliner.sequence(func.body)
        if outliner.has_changed:
            new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)
            builder.update_func(gvar, builder.normalize(new))
    made = builder.get()
    return IRModule(dict(made.functions_items()), attrs=mod.attrs, global_infos=mod.global_infos)


class _Outliner:
    """The branches of one function."""

    def __init__(self, builder: relax.BlockBuilder, name: str, mod: IRModule) -> None:
        self._builder, self._name, self._mod = builder, name, mod
        self.has_changed = False

    def sequence(self, body: relax.Expr) -> relax.Expr:
        """A body with its branches outlined, the innermost first."""
        if not isinstance(body, relax.SeqExpr):
            return body
        blocks = [
            block if isinstance(block, relax.DataflowBlock) else self._block(block) for block in body.blocks
        ]
        return relax.SeqExpr(blocks, body.body)

    def _block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        bindings = list[relax.Binding]()
        for binding in block.bindings:
            value = binding.value
            if isinstance(binding, relax.VarBinding) and isinstance(value, relax.If):
                branches = [
                    self._branch(value.true_branch, f"{binding.var.name}_then"),
                    self._branch(value.false_branch, f"{binding.var.name}_else"),
                ]
                binding = relax.VarBinding(binding.var, relax.If(value.cond, branches[0], branches[1]))
            bindings.append(binding)
        return relax.BindingBlock(bindings)

    def _branch(self, branch: relax.Expr, name: str) -> relax.Expr:
        inner = self.sequence(branch)
        if not _computes(inner):
            return inner
        free = list(relax.analysis.free_vars(inner))
        read = [var for var in free if not isinstance(var.ty, ir.PrimType)]
        sizes = list(relax.analysis.free_symbolic_vars(relax.Function(read, inner, branch.ty)))
        # First: the types of the others are made of them.
        params = [*([relax.Var("sizes", relax.ShapeType(sizes))] if sizes else []), *read]
        args = [*([relax.ShapeExpr(sizes)] if sizes else []), *read]
        func = relax.Function(params, inner, branch.ty)
        if contains_impure_call(func) or self._changes(func) or not set(free) <= {*read, *sizes}:
            return inner
        self.has_changed = True
        callee = self._builder.add_func(_with_own_variables(func), f"{self._name}_{name}")
        result = relax.Var(name, branch.ty)
        return relax.SeqExpr(
            [relax.DataflowBlock([relax.VarBinding(result, relax.Call(callee, args))])], result
        )

    def _changes(self, func: relax.Function) -> bool:
        """Whether a function changes the memory of a parameter."""
        changed = ChangedMemory(func, changed_params(func, self._mod))
        return any(map(changed.has, func.params))


def _with_own_variables(func: relax.Function) -> relax.Function:
    """``func`` with other variables; those of its sizes have other names too, which TVM's printer needs."""
    copy: Any = relax.utils.copy_with_new_vars(func)
    sizes = relax.analysis.defined_symbolic_vars(copy)
    return copy.bind_symbolic_vars({var: tirx.Var(f"{var.name}_inside", var.ty) for var in sizes})


def _computes(branch: relax.Expr) -> bool:
    """Whether a branch is more than a value, or one call of a function."""
    if not isinstance(branch, relax.SeqExpr):
        return isinstance(branch, relax.Call)
    values = [binding.value for block in branch.blocks for binding in block.bindings]
    is_call = (
        len(values) == 1 and isinstance(values[0], relax.Call) and isinstance(values[0].op, ir.GlobalVar)
    )
    return bool(values) and not is_call
