"""Kernels that compute each element of the result from the elements of the operands at its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax, te, tirx
from tvm_ffi import structural_equal

from ..arrays import numpy_dtype
from ..node import OnnxNode
from .precise import dtype_of as type_of
from .precise import is_narrow, rank_of

Element = ir.Expr
"""An element of a tensor, as an expression of a kernel."""


def pointwise(
    node: OnnxNode, name: str, function: Callable[..., Element], *operands: relax.Expr
) -> relax.Expr:
    """``function`` of the elements of ``operands``, which are broadcast to each other as numpy does it.

    Operands of one known element are written into the kernel as numbers.
    """
    tensors, places = [], []
    for operand in operands:
        number = scalar_of(operand)
        places.append(len(tensors) if number is None else number)
        if number is None:
            tensors.append(operand)
    if not tensors:  # a kernel needs an operand
        tensors, places = [operands[0]], [0, *places[1:]]

    def kernel(*given: te.Tensor) -> te.Tensor:
        def element(*place: ir.Expr) -> Element:
            read = [p if isinstance(p, ir.Expr) else _read(given[p], place) for p in places]
            return function(*read)

        return te.compute(broadcast_shape([tensor.shape for tensor in given]), element, name=name)

    return node.builder.call_te(kernel, *tensors, primfunc_name_hint=name)


def scalar_of(expr: relax.Expr) -> ir.Expr | None:
    """A constant of no dimensions as a number for kernels."""
    if not isinstance(expr, ir.GenericConst) or rank_of(expr) != 0:
        return None
    dtype = type_of(expr)
    value = expr.value.numpy().astype("float32" if dtype == "bfloat16" else numpy_dtype(dtype)).item()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return tirx.const(value, dtype)


def select(condition: Element, yes: Any, no: Element) -> Element:
    """``yes`` where ``condition`` holds, else ``no``; a number for ``yes`` gets the type of ``no``."""
    dtype = str(no.expr_ty().dtype)
    return tirx.Select(condition, yes if isinstance(yes, ir.Expr) else number(yes, dtype), no)


def number(value: Any, dtype: str) -> Element:
    """A number in a kernel."""
    return tirx.const(value, dtype)


def dtype_of(element: Element) -> str:
    """The type of an element."""
    return str(element.expr_ty().dtype)


def widened(function: Callable[..., Element]) -> Callable[..., Element]:
    """``function`` with elements of half precision computed in float32."""

    def wide(*elements: Element) -> Element:
        dtype = dtype_of(elements[0])
        if not is_narrow(dtype):
            return function(*elements)
        made = function(*(element.astype("float32") for element in elements))
        return made.astype(dtype) if dtype_of(made) == "float32" else made

    return wide


def larger(a: Element, b: Element) -> Element:
    """The maximum of two elements, NaN if one of them is."""
    return select(tirx.any(a > b, _is_nan(a)), a, b)


def smaller(a: Element, b: Element) -> Element:
    """The minimum of two elements, NaN if one of them is."""
    return select(tirx.any(a < b, _is_nan(a)), a, b)


def _is_nan(value: Element) -> Element:
    """TVM has no ``isnan`` for bfloat16."""
    return tirx.isnan(value.astype("float32") if dtype_of(value) == "bfloat16" else value)


def broadcast_shape(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """The sizes of several tensors broadcast to each other; a symbolic size may turn out to be 1."""
    rank = max(len(shape) for shape in shapes)
    aligned = [[_ONE] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [_joined(sizes) for sizes in zip(*aligned, strict=True)]


def _joined(sizes: Sequence[Any]) -> Any:
    fixed = [size for size in sizes if isinstance(size, tirx.IntImm) and size.value != 1]
    free = [size for size in sizes if not isinstance(size, tirx.IntImm)]
    if len({size.value for size in fixed}) > 1:
        raise ValueError(f"sizes {sizes} do not broadcast to each other")
    if fixed or not free:
        return fixed[0] if fixed else sizes[0]
    joined = free[0]
    for size in free[1:]:
        if not structural_equal(size, joined):
            joined = tirx.Select(joined.equal(_ONE), size, joined)
    return joined


_ONE = tirx.const(1, "int64")


def _read(tensor: te.Tensor, place: Sequence[ir.Expr]) -> Element:
    """The element of ``tensor`` that belongs to a place of the broadcast result."""
    shape = tensor.shape
    own = place[len(place) - len(shape) :]
    return tensor(*(_index(size, index) for size, index in zip(shape, own, strict=True)))


def _index(size: Any, index: ir.Expr) -> Any:
    if isinstance(size, tirx.IntImm):
        return tirx.const(0, "int64") if size.value == 1 else index
    return tirx.Select(size.equal(_ONE), tirx.const(0, "int64"), index)
