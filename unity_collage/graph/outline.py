"""Outlining: groups of bindings become calls of functions of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.ir import IRModule

from ..index_set import EMPTY, IndexSet, first_inside, members
from .dataflow import DataflowGraph, Node
from .sub_graph import SubGraph


@dataclass(frozen=True, slots=True)
class Group:
    """These bindings become ``callee(*args)``."""

    inside: IndexSet
    callee: relax.GlobalVar
    args: tuple[relax.Expr, ...]


class NameSupply:
    """Names of functions that nothing in a module has yet."""

    def __init__(self, mod: IRModule):
        self._taken = {gvar.name_hint for gvar in mod.get_global_vars()}
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                relax.analysis.post_order_visit(func, self._take_extern)

    def fresh(self, hint: str) -> str:
        """``hint`` as an identifier, with a number if it is taken."""
        base = re.sub(r"\W+", "_", hint)
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    def _take_extern(self, expr: relax.Expr) -> None:
        if isinstance(expr, relax.ExternFunc):
            self._taken.add(str(expr.global_symbol))


def outline(graph: DataflowGraph, groups: Sequence[Group]) -> relax.Function:
    """The function of ``graph`` with every group replaced by a call, in an order that respects all reads.

    Variables keep their identity: the exits of a group are bound to its result. The groups must be disjoint
    and acyclic together.
    """
    owner = {i: group for group in groups for i in members(group.inside)}
    blocks: list[relax.BindingBlock] = []
    for number, block in enumerate(graph.func.body.blocks):
        if not isinstance(block, relax.DataflowBlock):
            blocks.append(block)
            continue
        nodes = [node for node in graph.nodes if node.block == number]
        blocks.append(relax.DataflowBlock(list(_bindings(graph, nodes, owner))))
    func = graph.func
    body = relax.SeqExpr(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


def _bindings(
    graph: DataflowGraph, nodes: Iterable[Node], owner: dict[int, Group]
) -> Iterable[relax.Binding]:
    """The new bindings of one block, each as early as its inputs and the old order allow."""
    pending = list(dict.fromkeys(owner[n.index].inside if n.index in owner else 1 << n.index for n in nodes))
    inputs = {inside: SubGraph(graph, inside).input for inside in pending}
    block = EMPTY
    for inside in pending:
        block |= inside
    emitted = EMPTY
    while pending:
        ready = next(i for i in pending if not inputs[i] & block & ~emitted)
        pending.remove(ready)
        emitted |= ready
        index = first_inside(ready)
        if index in owner:
            yield from _call(graph, owner[index])
        else:
            yield graph.nodes[index].binding


def _call(graph: DataflowGraph, group: Group) -> Iterable[relax.Binding]:
    exits = [graph.nodes[i].var for i in members(SubGraph(graph, group.inside).exit)]
    if len(exits) == 1:
        yield relax.VarBinding(exits[0], relax.Call(group.callee, group.args, ret_ty=exits[0].ty))
        return
    ty = relax.TupleType([var.ty for var in exits])
    result = relax.DataflowVar(group.callee.name_hint, ty)
    yield relax.VarBinding(result, relax.Call(group.callee, group.args, ret_ty=ty))
    for position, var in enumerate(exits):
        item = relax.TupleGetItem(result, position)
        yield relax.VarBinding(var, item)


def global_var(name: str, func: relax.Function) -> relax.GlobalVar:
    """A typed global variable for ``func``."""
    builder = relax.BlockBuilder()
    return builder.add_func(func, name)
