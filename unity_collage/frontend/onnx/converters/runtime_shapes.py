"""Shapes that operands decide when the program runs.

A small kernel computes the sizes as a vector of int64, and ``match_cast`` gives them names: symbolic sizes, with
which the operators after it are typed. Kernels take symbolic sizes as arguments; sizes in a closure would be unknown
in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax, sym, te, tirx

from ..node import OnnxNode
from ..values import Dim

_OPAQUE = 8
"""TVM's ``OpPatternKind`` of kernels that do not fuse."""


intrinsics: Any = tirx
"""Functions of numbers such as ``floor``; TVM defines their names in a way that type checkers do not follow."""


def fixed(size: Any) -> int:
    """A size that the caller knows to be a number."""
    return int(size)


def dtype_of_expr(expr: Any) -> str:
    """The element type of a variable or constant."""
    return str(expr.ty.dtype)


def computed(node: OnnxNode, function: Callable[..., Any], *args: Any) -> relax.Var:
    """The result of a TE function of tensors, sizes and lists of sizes, bound to a variable.

    TVM's FuseTIR fails on kernels that take symbolic sizes, so these are not fused.
    """
    attrs = {"op_pattern": _OPAQUE} if any(map(_has_sizes, args)) else None
    return node.emit(node.builder.call_te(function, *args, primfunc_attrs=attrs))


def _has_sizes(arg: Any) -> bool:
    """Whether an argument of a kernel is or contains a symbolic size."""
    items = (
        arg.values if isinstance(arg, relax.ShapeExpr) else arg if isinstance(arg, (list, tuple)) else [arg]
    )
    sizes = [item for item in items if isinstance(item, ir.Expr) and not isinstance(item, tirx.IntImm)]
    return not all(isinstance(size.ty, relax.TensorType) for size in sizes)


def results(node: OnnxNode, function: Callable[..., Any], count: int, *args: Any) -> list[relax.Expr]:
    """The ``count`` results, two or more, of a TE function, each bound to a variable."""
    found = computed(node, function, *args)
    return [node.emit(relax.TupleGetItem(found, n)) for n in range(count)]


def sizes_of(node: OnnxNode, vector: relax.Expr, zeros: int = 0) -> list[Dim]:
    """The elements of a vector of int64 of known length, as symbolic sizes.

    The last ``zeros`` elements are checks, not sizes: the program ends with an error where one is not 0.
    """
    fresh = [node.importer.fresh_size() for _ in range(fixed(node.dims(vector)[0]) - zeros)]
    if fresh or zeros:
        shape = node.emit(relax.op.tensor_to_shape(vector))
        checked = [tirx.const(0, "int64")] * zeros
        node.builder.match_cast(shape, relax.ShapeType([*fresh, *checked]))
    return fresh


def run_time_sizes(
    node: OnnxNode, elements: Callable[..., Sequence[Any]], *args: Any, zeros: int = 0
) -> list[Dim]:
    """Symbolic sizes for the scalars ``elements(*args)``, which a kernel computes; :func:`sizes_of` has ``zeros``."""
    return sizes_of(node, computed(node, lambda *given: vector(elements(*given)), *args), zeros)


def vector(elements: Sequence[Any]) -> te.Tensor:
    """A vector of int64 with these scalar elements, one or more."""
    items = [as_int64(item) for item in elements]

    def element(place: ir.Expr) -> ir.Expr:
        found = items[-1]
        for n in range(len(items) - 2, -1, -1):
            found = tirx.Select(place == n, items[n], found)
        return found

    return te.compute((len(items),), element, name="sizes")


def as_int64(size: Any) -> ir.Expr:
    """A number or an integer expression as an expression of int64."""
    return size.astype("int64") if isinstance(size, ir.Expr) else tirx.const(int(size), "int64")


def scalar(tensor: te.Tensor) -> ir.Expr:
    """The only element of a tensor of any rank."""
    return tensor(*[0] * len(tensor.shape))


def from_the_end(index: ir.Expr, extent: Dim) -> ir.Expr:
    """An index from -extent to extent - 1 counted from the front, as int64.

    Other indexes are errors by the standard; they wrap around, so that no kernel reads outside of a tensor.
    """
    size = as_int64(extent)
    return tirx.floormod(as_int64(index), tirx.max(size, as_int64(1)))


def product(sizes: Sequence[Dim]) -> Dim:
    """The number of elements of a shape."""
    total: Dim = 1
    for size in sizes:
        total = total * size
    return simple(total)


def simple(size: Dim) -> Dim:
    """A size, simplified; a number if it is one."""
    if isinstance(size, ir.Expr) and not isinstance(size, ir.Var):
        size = sym.Analyzer().simplify(size)
        return int(size.value) if isinstance(size, tirx.IntImm) else size
    return size


def is_empty(sizes: Sequence[Dim]) -> bool:
    """Whether a tensor of this shape certainly has no elements."""
    return any(isinstance(size, int) and size == 0 for size in sizes)


def empty(node: OnnxNode, sizes: Sequence[Dim], dtype: str) -> relax.Expr:
    """A tensor without elements."""
    return relax.op.zeros(relax.ShapeExpr(list(sizes)), dtype)


def flat_index(place: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The index of a place among the elements of a tensor in row-major order."""
    found: Any = as_int64(0)
    for at, size in zip(place, shape, strict=True):
        found = found * size + at
    return found


def place_of(index: Any, shape: Sequence[Any]) -> list[Any]:
    """The place of an element by its index in row-major order."""
    place = []
    for size in reversed(shape):
        place.append(tirx.floormod(index, as_int64(size)))
        index = tirx.floordiv(index, as_int64(size))
    return place[::-1]
