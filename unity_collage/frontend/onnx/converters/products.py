"""MatMul and Gemm, and the products of com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax

from ..broadcasting import aligned_for_product, broadcast
from ..node import Converted, OnnxNode
from ..values import Value
from .precise import dtype_of, is_narrow, narrowed, rank_of


def _matmul(node: OnnxNode) -> Converted:
    return narrowed(node, product(*aligned_for_product(node, node.value(0), node.value(1))), node.dtype())


def product(a: relax.Expr, b: relax.Expr) -> relax.Call:
    """The product of two variables or constants of one type; of 16-bit floats in float32."""
    return relax.op.matmul(a, b, "float32" if is_narrow(dtype_of(a)) else None)


def _gemm(node: OnnxNode) -> Converted:
    return narrowed(node, gemm(node), node.dtype())


def gemm(node: OnnxNode) -> relax.Expr:
    """alpha * A' B' + beta * C, with the factor after the product; in float32 for 16-bit floats."""
    if node.rank(0) != 2 or node.rank(1) != 2:
        node.refuse(f"its operands have the ranks {node.rank(0)} and {node.rank(1)}, not 2")
    a = _transposed(node, node[0], bool(node.attribute("transA", 0)))
    b = _transposed(node, node[1], bool(node.attribute("transB", 0)))
    made = _scaled(node, node.emit(product(a, b)), node.attribute("alpha", 1.0))
    if not node.has(2):
        return made
    added = _scaled(node, node.cast(node[2], dtype_of(made)), node.attribute("beta", 1.0))
    return relax.op.add(*broadcast(node, made, added))


def _transposed(node: OnnxNode, x: relax.Expr, wanted: bool) -> relax.Expr:
    """``x``, or with its last two axes exchanged."""
    rank = rank_of(x)
    if not wanted or rank < 2:
        return x
    return node.emit(relax.op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2]))


def _scaled(node: OnnxNode, x: relax.Expr, factor: float) -> relax.Expr:
    if factor == 1:
        return x
    dtype = dtype_of(x)
    if "int" in dtype and factor != int(factor):
        node.refuse(f"its factor {factor} is not an integer, and its operands are {dtype}")
    return node.emit(relax.op.multiply(x, node.constant(factor, dtype)))


def _fused_matmul(node: OnnxNode) -> Converted:
    """alpha * A' B', where the batch axes may also be behind the rows: transBatchA and transBatchB."""
    arranged = [_arranged(node, node[n], "AB"[n]) for n in (0, 1)]
    a, b = (Value(dtype_of(x), expr=x) for x in arranged)
    made = node.emit(product(*aligned_for_product(node, a, b)))
    made = _scaled(node, made, node.attribute("alpha", 1.0))
    return narrowed(node, made, node.dtype())


def _arranged(node: OnnxNode, x: relax.Expr, which: str) -> relax.Expr:
    rank = rank_of(x)
    if node.attribute(f"transBatch{which}", 0) and rank > 2:
        # (rows, batch, columns) -> (batch, rows, columns)
        x = node.emit(relax.op.permute_dims(x, [*range(1, rank - 1), 0, rank - 1]))
    return _transposed(node, x, bool(node.attribute(f"trans{which}", 0)))


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Gemm": _gemm, "MatMul": _matmul}
MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {"FusedMatMul": _fused_matmul}
