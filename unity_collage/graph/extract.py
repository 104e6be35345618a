"""Extraction: a sub-graph as a separate Relax function, and its signature as text."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..index_set import members
from ..target import devices_of
from .dataflow import DataflowGraph, Node, used_vars
from .prim_funcs import CALL_TIR, callee_of, prim_digest
from .sub_graph import SubGraph

SMALL_CONSTANT = 1
"""The most elements of a constant with its value in the signature: clip bounds, scales, indexes."""


EXTRACTION_VERSION = 1
"""Raise it when :func:`extract` makes another function of the same sub-graph. It is part of the cost fingerprint."""

LIFTED = "collage.lifted_constants"
"""Function attribute: the number of trailing parameters that are constants in the program."""

PRIM_FUNCS = "collage.prim_funcs"
"""Attribute of a function that stands alone: a module with the PrimFuncs that it calls, under names of its own."""

Leaf = relax.Var | ir.GenericConst | relax.GlobalVar


def substitute(expr: relax.Expr, replacement: Mapping[Any, relax.Expr]) -> relax.Expr:
    """``expr`` with variables, constants and names replaced; it must not bind variables itself."""
    if isinstance(expr, (relax.Var, ir.GenericConst, relax.GlobalVar)):
        return replacement.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substitute(field, replacement) for field in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substitute(expr.tuple_value, replacement), expr.index)
    if isinstance(expr, relax.Call):
        args = [substitute(arg, replacement) for arg in expr.args]
        return relax.Call(substitute(expr.op, replacement), args, expr.attrs, expr.ty_args)
    return expr


def outside_vars(sub: SubGraph) -> list[relax.Var]:
    """The variables that the inside reads from outside, in order of first mention."""
    graph = sub.graph
    found: dict[relax.Var, None] = {}
    for i in members(sub.inside):
        for var in used_vars(graph.nodes[i].value):
            index = graph.index_of.get(var)
            if index is None or not sub.inside >> index & 1:
                found[var] = None
    return list(found)


def large_constants(sub: SubGraph) -> list[ir.GenericConst]:
    """The constants inside that have more than ``SMALL_CONSTANT`` elements, each once, in order of first mention."""
    found: dict[ir.GenericConst, None] = {}
    for i in members(sub.inside):
        for constant in _constants(sub.graph.nodes[i].value):
            if not is_small(constant):
                found[constant] = None
    return list(found)


def is_small(constant: ir.GenericConst) -> bool:
    """Whether a constant belongs to the computation (a bound, a scale, an index) rather than to the weights."""
    return math.prod(int(extent) for extent in constant.value.shape) <= SMALL_CONSTANT


def prim_funcs(sub: SubGraph) -> dict[relax.GlobalVar, tirx.PrimFunc]:
    """The PrimFuncs that the inside calls by their names in the module, in order of first mention."""
    found: dict[relax.GlobalVar, tirx.PrimFunc] = {}
    for i in members(sub.inside):
        node = sub.graph.nodes[i]
        callee = callee_of(node.value)
        if node.prim is not None and callee is not None:
            found[callee] = node.prim
    return found


def extract(sub: SubGraph, *, lift_constants: bool = False, alone: bool = False) -> relax.Function:
    """A function that computes the exits of ``sub`` from its :func:`outside_vars`, in that order.

    It returns one exit as it is, and several as a tuple in index order. Constants stay inside. With
    ``lift_constants`` the large ones become trailing parameters; the attribute ``LIFTED`` is their number. An operand
    that is read twice, as in ``matmul(x, x)``, is one parameter. With ``alone`` the function needs no module: the
    PrimFuncs that it calls are its attribute ``PRIM_FUNCS``.
    """
    params: dict[Leaf, relax.Var] = {var: relax.Var(var.name, var.ty) for var in outside_vars(sub)}
    lifted = large_constants(sub) if lift_constants else []
    params.update({constant: relax.Var(f"c{i}", constant.ty) for i, constant in enumerate(lifted)})
    renamed: dict[Leaf, relax.Expr] = dict(params)
    carried = IRModule()
    if alone:
        own, carried = _carried(prim_funcs(sub))
        renamed |= own
    exits = set(members(sub.exit))
    builder = relax.BlockBuilder()
    results: list[relax.Expr] = []
    with builder.function("extracted", list(params.values())):
        with builder.dataflow():
            for i in members(sub.inside):
                node = sub.graph.nodes[i]
                value = substitute(node.value, renamed)
                emitted = (builder.emit_output if i in exits else builder.emit)(value, node.var.name)
                renamed[node.var] = emitted
                if i in exits:
                    results.append(emitted)
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    func = builder.get()["extracted"].without_attr("global_symbol")
    if carried.functions:
        func = func.with_attr(PRIM_FUNCS, carried)
    return func.with_attr(LIFTED, len(lifted)) if lift_constants else func


def _carried(
    called: Mapping[relax.GlobalVar, tirx.PrimFunc],
) -> tuple[dict[relax.GlobalVar, relax.GlobalVar], IRModule]:
    """New names for PrimFuncs, which do not depend on those in the module, and a module with them."""
    builder = relax.BlockBuilder()
    names = {
        gvar: builder.add_func(prim.without_attr("global_symbol"), f"tir{i}")
        for i, (gvar, prim) in enumerate(called.items())
    }
    return names, builder.get()


def prim_funcs_of(func: relax.Function) -> IRModule:
    """The module in the attribute ``PRIM_FUNCS`` of ``func``; empty if it calls no PrimFunc."""
    attrs: Any = func.attrs or {}
    return attrs.get(PRIM_FUNCS, IRModule())


def _constants(expr: relax.Expr) -> Iterator[ir.GenericConst]:
    if isinstance(expr, ir.GenericConst):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from _constants(field)
    elif isinstance(expr, relax.Call):
        for arg in expr.args:
            yield from _constants(arg)


def _type_text(ty: ir.Type) -> str:
    """A type as text, with its virtual devices in full: TVM prints them as indexes into the module's list."""
    return " on ".join((str(ty), *(str(device) for device in devices_of(ty))))


class Signatures:
    """Canonical texts of sub-graphs of one graph: equal texts mean the same computation on the same types.

    Variables are written as positions, and so are constants of more than ``SMALL_CONSTANT`` elements, with their types.
    Sixteen equal convolutions with different weights have one signature. A constant that is read twice keeps one
    position, so it differs from two constants. A PrimFunc is written as the digest of its loops. The text does not
    depend on the process.
    """

    def __init__(self, graph: DataflowGraph):
        self._graph = graph
        self._small: dict[ir.GenericConst, str | None] = {}

    def text(self, sub: SubGraph) -> str:
        """One line for each node, such as ``%2 = relax.nn.relu(%1)``, and one for the result."""
        local: dict[Leaf, str] = {}
        lines: list[str] = []
        for position, i in enumerate(members(sub.inside)):
            node = self._graph.nodes[i]
            if node.op == CALL_TIR:
                self._name_prim(node, local)
            lines.append(f"%{position} = {self._expr(node.value, local)}")
            local[node.var] = f"%{position}"
        lines.append("return " + ", ".join(local[self._graph.nodes[i].var] for i in members(sub.exit)))
        return "\n".join(lines)

    def digest(self, sub: SubGraph) -> str:
        """The first 24 hex digits of the SHA-256 of :meth:`text`."""
        return hashlib.sha256(self.text(sub).encode()).hexdigest()[:24]

    def _expr(self, expr: relax.Expr, local: dict[Leaf, str]) -> str:
        if isinstance(expr, ir.GenericConst) and (text := self._by_value(expr)) is not None:
            return text
        if isinstance(expr, relax.GlobalVar):
            return local.get(expr, str(expr))
        if isinstance(expr, (relax.Var, ir.GenericConst)):
            if expr not in local:
                kind = "p" if isinstance(expr, relax.Var) else "c"
                local[expr] = f"${kind}{sum(name.startswith('$') for name in local.values())}"
                return f"{local[expr]}: {_type_text(expr.ty)}"
            return local[expr]
        if isinstance(expr, relax.Tuple):
            return "(" + ", ".join(self._expr(field, local) for field in expr.fields) + ")"
        if isinstance(expr, relax.TupleGetItem):
            return f"{self._expr(expr.tuple_value, local)}[{expr.index}]"
        if isinstance(expr, relax.Call):
            args = ", ".join(self._expr(arg, local) for arg in expr.args)
            name = getattr(expr.op, "name", None) or str(expr.op)
            types = "".join(f", {ty}" for ty in expr.ty_args)
            return f"{name}({args}{types}) {expr.attrs if expr.attrs is not None else ''}"
        return str(expr)

    def _name_prim(self, node: Node, local: dict[Leaf, str]) -> None:
        """Let the digest of the PrimFunc that ``node`` calls stand for its name."""
        callee = callee_of(node.value)
        if node.prim is None or callee is None:
            raise ValueError(f"{node.label} has no signature: its graph was made without the module")
        local[callee] = f"tir {prim_digest(node.prim)}"

    def _by_value(self, constant: ir.GenericConst) -> str | None:
        """The text of a small constant, with its value; None for a large one."""
        if constant not in self._small:
            value = (
                f"const {constant.ty} = {constant.value.numpy().tolist()!r}" if is_small(constant) else None
            )
            self._small[constant] = value
        return self._small[constant]
