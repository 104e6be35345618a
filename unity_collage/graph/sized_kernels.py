"""Whether nodes whose sizes are known only when the program runs may be one kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any

from tvm import ir, relax

from ..index_set import members
from .extract import outside_vars
from .free_sizes import Size, defining_axes, shape_with_sizes, size_of
from .sub_graph import SubGraph


def why_not_sized(sub: SubGraph, known: Collection[str], is_external: bool) -> str | None:
    """Why ``sub``, which has free sizes, cannot be a kernel, or None.

    Its sizes must follow from the extents of its operands, and have a sample among the ``known`` ones, at which it is
    measured. An external kernel computes nothing where an operand is empty, so then its results must be empty too.
    """
    inside = _types(sub)
    names = {var.name: None for ty in inside for var in relax.analysis.tir_vars_in_type(ty)}
    if unknown := next((name for name in names if name not in known), None):
        return f"there is no sample of the size {unknown}, at which a kernel could be measured"
    operands = [shape for var in outside_vars(sub) if (shape := shape_with_sizes(var.ty)) is not None]
    results = list(_shapes(sub.graph.nodes[i].var.ty for i in members(sub.exit)))
    places = defining_axes(operands)
    for extent in chain.from_iterable(_shapes(inside)):
        if isinstance(extent, Size) and (open_sizes := extent.symbols() - set(places)):
            return f"the size {min(open_sizes)[0]} is not an extent of an operand"
    return _why_not_empty(operands, results) if is_external else None


def has_free_sizes(sub: SubGraph) -> bool:
    """Whether a size in ``sub`` is known only when the program runs."""
    return any(map(relax.analysis.tir_vars_in_type, _types(sub)))


def _types(sub: SubGraph) -> list[ir.Type]:
    """The types of what is computed inside, and of what that reads."""
    nodes = [sub.graph.nodes[i] for i in members(sub.inside)]
    return [value.ty for node in nodes for value in (node.var, *node.operands)]


def _why_not_empty(operands: Iterable[tuple[Any, ...]], results: Iterable[tuple[Any, ...]]) -> str | None:
    for extent in dict.fromkeys(chain.from_iterable(operands)):
        if (
            isinstance(extent, Size)
            and not extent.is_never_empty()
            and any(extent not in dims for dims in results)
        ):
            return f"an operand may be empty where a result is not: {extent} is no extent of it"
    return None


def _shapes(types: Iterable[ir.Type]) -> Iterable[tuple[Any, ...]]:
    """The shapes of tensors, those in tuples included, and shapes that are values."""
    for ty in types:
        if isinstance(ty, relax.TupleType):
            yield from _shapes(ty.fields)
        elif isinstance(ty, relax.ShapeType) and ty.values is not None:
            yield tuple(map(size_of, ty.values))
        elif (shape := shape_with_sizes(ty)) is not None:
            yield shape
