"""Sizes that a ``match_cast`` learns stand before the bindings that have them in their types.

TVM's FuseOps orders the bindings of a dataflow block by the variables that they read. A size is none, so a kernel may
come out before the ``match_cast`` that defines its sizes, and such a program cannot be built.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import ir, relax
from tvm.ir import IRModule

from ..graph.dataflow import used_vars
from ..graph.free_sizes import sizes_in


def with_sizes_first(mod: IRModule) -> IRModule:
    """``mod`` whose dataflow blocks are in an order that respects reads and sizes, otherwise in the order they had."""
    functions = {
        gvar: _ordered(func) if isinstance(func, relax.Function) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _ordered(func: relax.Function) -> relax.Function:
    blocks = [
        _block(block) if isinstance(block, relax.DataflowBlock) else block for block in func.body.blocks
    ]
    if all(one.same_as(other) for one, other in zip(blocks, func.body.blocks, strict=True)):
        return func
    body = relax.SeqExpr(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def _block(block: relax.DataflowBlock) -> relax.BindingBlock:
    """The bindings in post-order of a depth-first search over what each reads and what defines its sizes."""
    made = {binding.var: binding for binding in block.bindings}
    definer: dict[ir.Var, relax.Var] = {}
    for binding in block.bindings:
        if isinstance(binding, relax.MatchCast):
            for size in relax.analysis.tir_vars_in_type(binding.ty):
                definer.setdefault(size, binding.var)
    if not definer:
        return block

    def sources(binding: relax.Binding) -> Iterator[relax.Var]:
        yield from (var for var in used_vars(binding.value) if var in made)
        yield from (definer[size] for size in _sizes(binding) if size in definer)

    done: dict[relax.Var, relax.Binding] = {}
    for root in made:
        stack = [(root, sources(made[root]))] if root not in done else []
        while stack:
            var, pending = stack[-1]
            following = next((read for read in pending if read not in done), None)
            if following is None:
                done[var] = made[var]
                stack.pop()
            else:
                stack.append((following, sources(made[following])))
    ordered = list(done.values())
    return block if ordered == list(block.bindings) else relax.DataflowBlock(ordered)


def _sizes(binding: relax.Binding) -> Iterator[ir.Var]:
    """The sizes that a binding needs, in its type and among its arguments; none for one that learns them."""
    if isinstance(binding, relax.MatchCast):
        return
    yield from relax.analysis.tir_vars_in_type(binding.var.ty)
    for arg in binding.value.args if isinstance(binding.value, relax.Call) else ():
        for part in arg.fields if isinstance(arg, relax.Tuple) else (arg,):
            for extent in part.values if isinstance(part, relax.ShapeExpr) else (part,):
                if isinstance(extent.ty, ir.PrimType):
                    yield from sizes_in(extent)
