"""From the bindings of a function to the bytes that its values take, for plans under a limit of memory."""

from __future__ import annotations

from collections.abc import Iterable

from tvm import ir, relax

from ..graph import DataflowGraph, Node
from ..graph.shapes import nbytes_of, shape_of
from ..search.memory import Footprint
from .candidate import VIEW, Candidate
from .memory import PAGE


def footprint_of(graph: DataflowGraph, candidates: Iterable[Candidate]) -> Footprint:
    """The bytes of the values of a function; values of unknown size count as 0.

    Packed weights and scratch memory of a library are not known before its kernels are built, and are not counted.
    """
    return Footprint(
        sizes=tuple(0 if node.is_host else _nbytes(node.var) for node in graph.nodes),
        kinds=tuple(_kind(node) for node in graph.nodes),
        views=frozenset(candidate.id for candidate in candidates if candidate.backend == VIEW),
        weights=_constants(graph.func),
        page=PAGE,
    )


def _nbytes(var: relax.Expr) -> int:
    if isinstance(var.ty, relax.TupleType):
        return sum(_nbytes(relax.Var("field", field)) for field in var.ty.fields)
    return nbytes_of(var)


def unknown_values(graph: DataflowGraph) -> int:
    """How many tensors have sizes that are known only when the program runs."""
    tensors = (node.var.ty for node in graph.nodes if not node.is_host)
    return sum(isinstance(ty, relax.TensorType) and shape_of(ty) is None for ty in tensors)


def places_of(graph: DataflowGraph) -> frozenset[str]:
    """The devices and scopes of the tensors."""
    return frozenset(
        _place(ty) for ty in (node.var.ty for node in graph.nodes) if isinstance(ty, relax.TensorType)
    )


def _place(ty: relax.TensorType) -> str:
    device = ty.vdevice
    return "" if device is None else f"{device.target} {device.vdevice_id} {device.memory_scope}"


def _kind(node: Node) -> str:
    """The element type and the place of a tensor: TVM's planner shares memory within both."""
    ty = node.var.ty
    return f"{ty.dtype} {_place(ty)}" if isinstance(ty, relax.TensorType) else ""


def _constants(func: relax.Function) -> int:
    """The bytes of the constants that the function names, each once."""
    found: dict[object, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst):
            found[expr] = nbytes_of(expr)

    relax.analysis.post_order_visit(func.body, visit)
    return sum(found.values())
