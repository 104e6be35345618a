"""Changes of the element type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax, tirx

from ..arrays import dtype_of, numpy_dtype
from ..node import Converted, OnnxNode
from .pointwise import Element, number, pointwise


def _cast(node: OnnxNode) -> Converted:
    return _to(node, dtype_of(node.required("to")))


def _cast_like(node: OnnxNode) -> Converted:
    return _to(node, node.dtype(1))


def _to(node: OnnxNode, dtype: str) -> Converted:
    """Floats lose their fraction, integers wrap around, and values other than zero are true."""
    return node.value(0) if node.dtype() == dtype else relax.op.astype(node[0], dtype)


def _bit_cast(node: OnnxNode) -> Converted:
    """The same bits as another type of the same size."""
    dtype, given = dtype_of(node.required("to")), node.dtype()
    if numpy_dtype(dtype).itemsize != numpy_dtype(given).itemsize:
        node.refuse(f"{given} and {dtype} have different sizes")
    if dtype == given:
        return node.value(0)

    def bits(x: Element) -> Element:
        if given == "bool":
            x = x.astype("uint8")
        if dtype == "bool":
            x = tirx.reinterpret("uint8", x) if given != "uint8" and given != "bool" else x
            return tirx.NE(x, number(0, "uint8"))
        return x if given == "bool" and dtype == "uint8" else tirx.reinterpret(dtype, x)

    return pointwise(node, "bit_cast", bits, node[0])


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "BitCast": _bit_cast,
    "Cast": _cast,
    "CastLike": _cast_like,
}
