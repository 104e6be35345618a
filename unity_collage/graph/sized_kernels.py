"""Whether a function with sizes that are known only when it runs may be a kernel of a library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import Any

from tvm import ir, relax, sym, tirx

from ..index_set import members
from ..operators.recurrent import has_result_without_steps
from .extract import outside_vars
from .free_sizes import Size, places_of_sizes, shape_with_sizes, sizes_in, substituted
from .sub_graph import SubGraph

_TRIED = range(256)
"""The values of a size from 0 on at which an extent is examined, as long as it is empty: ``n - 1`` is so up to 1."""


def names_of_sizes(sub: SubGraph) -> list[str]:
    """The names of the sizes in ``sub`` that are known only when the program runs."""
    names = sub.graph.size_names
    return list(dict.fromkeys(chain.from_iterable(names[i] for i in members(sub.inside))))


def why_not_told(func: relax.Function) -> str | None:
    """Why a library cannot make a kernel of ``func`` that gets its sizes from its operands and results, or None."""
    operands = [param.ty for param in func.params]
    told = places_of_sizes(list(_shapes((*operands, *_fields(func.ret_ty)))))
    inside = [binding.var.ty for block in func.body.blocks for binding in block.bindings]
    for extent in chain.from_iterable(_shapes((*operands, *inside))):
        if isinstance(extent, Size) and (open_sizes := extent.symbols() - set(told)):
            return f"the size {min(open_sizes)[0]} is neither an extent of an operand nor of a result"
    return None


def why_not_empty(sub: SubGraph) -> str | None:
    """Why an operand of ``sub`` may be empty where a result is not, or None.

    A library computes nothing if an operand is empty, except for recurrent layers without steps.
    """
    results = [sub.graph.nodes[i].var.ty for i in members(sub.exit)]
    read = [var for var in outside_vars(sub) if not _is_read_without_steps(var, sub)]
    for extent in chain.from_iterable(_extents(var.ty) for var in read):
        for size in sizes_in(extent):
            for value in takewhile(lambda at, of=(size, extent): _is_empty_at(of[0], at, [of[1]]), _TRIED):
                if not all(_is_empty_at(size, value, _extents(result)) for result in results):
                    return f"an operand may be empty where a result is not: {size.name} may be {value}"
    return None


def _is_read_without_steps(var: relax.Var, sub: SubGraph) -> bool:
    """Whether ``sub`` reads ``var`` only as the inputs of recurrent layers that have a result without any steps."""
    readers = [
        node.value for node in (sub.graph.nodes[i] for i in members(sub.inside)) if var in node.operands
    ]
    return all(
        isinstance(reader, relax.Call)
        and has_result_without_steps(reader)
        and [position for position, arg in enumerate(reader.args) if arg.same_as(var)] == [0]
        for reader in readers
    )


def _is_empty_at(size: ir.Var, value: int, extents: Iterable[ir.Expr]) -> bool:
    """Whether one of the ``extents`` is 0 or less where ``size`` is ``value``, whatever other sizes are."""

    def bound(var: ir.Var) -> ir.Expr:
        return tirx.const(value, "int64") if var.same_as(size) else var

    left = [sym.Analyzer().simplify(substituted(extent, bound)) for extent in extents]
    return any(isinstance(extent, tirx.IntImm) and int(extent.value) <= 0 for extent in left)


def _shapes(types: Iterable[ir.Type]) -> Iterable[tuple[Any, ...]]:
    """The shapes of tensors, those in tuples included; other values have an empty one."""
    for ty in types:
        if isinstance(ty, relax.TupleType):
            yield from _shapes(ty.fields)
        else:
            yield shape_with_sizes(ty) or ()


def _extents(ty: ir.Type) -> list[ir.Expr]:
    """The extents of a tensor, or of all tensors of a tuple."""
    if isinstance(ty, relax.TupleType):
        return [extent for field in ty.fields for extent in _extents(field)]
    shape = ty.shape if isinstance(ty, relax.TensorType) else None
    return list(shape.values) if isinstance(shape, relax.ShapeExpr) else []


def _fields(ty: ir.Type) -> Sequence[ir.Type]:
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
