"""Outlining: groups of bindings become calls of functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tvm import ir, relax
from tvm.ir import IRModule

from ..graph.dataflow import DataflowGraph
from ..graph.sub_graph import SubGraph
from ..index_set import EMPTY, IndexSet, first_inside, index_set, members


@dataclass(frozen=True, slots=True)
class Group:
    """These bindings become ``callee(*args)``, or another name for their one argument."""

    sub: SubGraph
    callee: relax.GlobalVar | None
    """None: the group returns what it reads."""
    args: tuple[relax.Expr, ...]

    @property
    def name(self) -> str:
        """The name of the function that is called; empty where none is."""
        return self.callee.name_hint if self.callee is not None else ""


class NameSupply:
    """Supplies names of functions that are not used in a module."""

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
    """The function of ``graph`` with a call in place of every group, in an order that respects all reads.

    Variables keep their identity: the exits of a group are bound to its result. Groups may overlap, but at most one of
    them writes a value, and together they must be acyclic.
    """
    blocks: list[relax.BindingBlock] = []
    for number, block in enumerate(graph.func.body.blocks):
        if not isinstance(block, relax.DataflowBlock):
            blocks.append(block)
            continue
        units = _units(graph, number, groups)
        blocks.append(relax.DataflowBlock([binding for unit in units for binding in unit.bindings(graph)]))
    func = graph.func
    body = relax.SeqExpr(blocks, func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)


@dataclass(frozen=True, slots=True)
class _Unit:
    """Bindings that are emitted together: the call of a group, or one binding that is in none."""

    sub: SubGraph
    group: Group | None

    def bindings(self, graph: DataflowGraph) -> Iterable[relax.Binding]:
        if self.group is None:
            return (graph.nodes[first_inside(self.sub.inside)].binding,)
        return _call(graph, self.group)


def _units(graph: DataflowGraph, block: int, groups: Sequence[Group]) -> list[_Unit]:
    """The units of one block in an order that respects all reads, otherwise in the order of the function."""
    nodes = index_set(node.index for node in graph.nodes if node.block == block)
    pending = [_Unit(group.sub, group) for group in groups if group.sub.inside & nodes]
    pending += [_Unit(SubGraph(graph, 1 << i), None) for i in members(nodes & _alone(graph, groups))]
    pending.sort(key=lambda unit: first_inside(unit.sub.inside))
    made = ~nodes
    ordered: list[_Unit] = []
    while pending:
        ready = next(unit for unit in pending if not unit.sub.input & ~made)
        pending.remove(ready)
        ordered.append(ready)
        made |= ready.sub.inside if ready.group is None else ready.sub.exit
    return ordered


def _alone(graph: DataflowGraph, groups: Sequence[Group]) -> IndexSet:
    """The bindings that stay: those in no group, and those that a group does not write although others read them."""
    grouped, written, wanted = EMPTY, EMPTY, graph.results
    for group in groups:
        grouped |= group.sub.inside
        written |= group.sub.exit
        wanted |= group.sub.input
    alone = waiting = index_set(range(len(graph.nodes))) & ~grouped | wanted & ~written
    while waiting:
        last = waiting.bit_length() - 1
        more = SubGraph(graph, 1 << last).input & ~written & ~alone
        alone |= more
        waiting = (waiting & ~(1 << last)) | more
    return alone


def _call(graph: DataflowGraph, group: Group) -> Iterable[relax.Binding]:
    exits = [graph.nodes[i].var for i in members(group.sub.exit)]
    if group.callee is None:
        yield relax.VarBinding(exits[0], group.args[0])
        return
    if len(exits) == 1:
        yield relax.VarBinding(exits[0], relax.Call(group.callee, group.args, ret_ty=exits[0].ty))
        return
    ty = relax.TupleType([var.ty for var in exits])
    result = relax.DataflowVar(group.name, ty)
    yield relax.VarBinding(result, relax.Call(group.callee, group.args, ret_ty=ty))
    for position, var in enumerate(exits):
        item = relax.TupleGetItem(result, position)
        yield relax.VarBinding(var, item)


def global_var(name: str, func: ir.BaseFunc) -> relax.GlobalVar:
    """A typed global variable for ``func``."""
    builder = relax.BlockBuilder()
    return builder.add_func(func, name)
