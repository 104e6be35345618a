"""Sums of 16-bit floats are computed in float32, as the standard's reference and other runtimes do."""

from __future__ import annotations

from tvm import relax

from ..node import OnnxNode


def is_narrow(dtype: str) -> bool:
    """Whether sums of elements of this type are computed in float32."""
    return dtype in ("float16", "bfloat16")


def wide_type(dtype: str) -> str:
    """The type in which sums of elements of ``dtype`` are computed."""
    return "float32" if is_narrow(dtype) else dtype


def widened(node: OnnxNode, expr: relax.Expr) -> relax.Expr:
    """``expr`` in the type in which it is summed."""
    return node.cast(expr, wide_type(dtype_of(expr)))


def narrowed(node: OnnxNode, expr: relax.Expr, dtype: str) -> relax.Expr:
    """``expr``, which need not be emitted yet, as a result of type ``dtype``."""
    var = node.emit(expr)
    return var if dtype_of(var) == dtype else relax.op.astype(var, dtype)


def dtype_of(expr: relax.Expr) -> str:
    """The element type of a tensor."""
    assert isinstance(expr.ty, relax.TensorType)
    return str(expr.ty.dtype)


def rank_of(expr: relax.Expr) -> int:
    """The number of axes of a tensor."""
    assert isinstance(expr.ty, relax.TensorType)
    return expr.ty.ndim
