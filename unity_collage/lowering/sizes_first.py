"""Sizes that a ``match_cast`` learns stand before the bindings that have them in their types.

TVM's FuseOps orders the bindings of a dataflow block by the variables that they read. A size is not such a variable, so
a kernel may be placed before the ``match_cast`` that defines its sizes. Such a program cannot be built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

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
    known = {size for param in func.params for size in relax.analysis.tir_vars_in_type(param.ty)}
    blocks: list[relax.BindingBlock] = []
    for block in func.body.blocks:
        blocks.append(_block(block, known) if isinstance(block, relax.DataflowBlock) else block)
        known.update(_learned(block))
    if all(one.same_as(other) for one, other in zip(blocks, func.body.blocks, strict=True)):
        return func
    body = relax.SeqExpr(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def _block(block: relax.DataflowBlock, known: Set[ir.Var]) -> relax.BindingBlock:
    """The bindings in post-order of a depth-first search over what each reads and what defines its sizes.

    Sizes in ``known`` are defined before the block. Bindings that wait for each other have no order: they stay as they
    are, and TVM reports what is wrong.
    """
    made = {binding.var: binding for binding in block.bindings}
    definer: dict[ir.Var, relax.Var] = {}
    for binding in block.bindings:
        for size in _learned_by(binding):
            if size not in known:
                definer.setdefault(size, binding.var)
    if not definer:
        return block

    def sources(binding: relax.Binding) -> Iterator[relax.Var]:
        yield from (var for var in used_vars(binding.value) if var in made)
        yield from (definer[size] for size in _sizes(binding) if size in definer)

    done: dict[relax.Var, relax.Binding] = {}
    for root in made:
        waiting = {} if root in done else {root: sources(made[root])}
        while waiting:
            var = next(reversed(waiting))
            following = next((read for read in waiting[var] if read not in done), None)
            if following is None:
                done[var] = made[var]
                del waiting[var]
            elif following in waiting:
                return block
            else:
                waiting[following] = sources(made[following])
    ordered = list(done.values())
    return block if ordered == list(block.bindings) else relax.DataflowBlock(ordered)


def _learned(block: relax.BindingBlock) -> Iterator[ir.Var]:
    """The sizes that a block defines, or states again."""
    for binding in block.bindings:
        yield from _learned_by(binding)


def _learned_by(binding: relax.Binding) -> Sequence[ir.Var]:
    return relax.analysis.tir_vars_in_type(binding.ty) if isinstance(binding, relax.MatchCast) else ()


def _sizes(binding: relax.Binding) -> Iterator[ir.Var]:
    """The variables that a binding needs, in its type and anywhere in its value; none for one that learns them."""
    if not isinstance(binding, relax.MatchCast):
        yield from relax.analysis.tir_vars_in_type(binding.var.ty)
        yield from sizes_in(binding.value)
