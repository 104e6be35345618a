"""MatMulNBits of com.microsoft: products with weights of 2, 4 or 8 bits, which are widened while importing.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#commicrosoftmatmulnbits
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax

from ..node import Converted, OnnxNode
from .precise import dtype_of, narrowed, wide_type
from .products import product


def _matmul_n_bits(node: OnnxNode) -> Converted:
    """x (..., K) times weights (N, blocks, bytes) of uint8, each block with a scale and a zero point."""
    if node.has(4) and node.numbers(4) is not None and not _is_in_order(node):
        node.refuse("weights whose groups are reordered (g_idx) are not supported")
    if node.has(4) and node.numbers(4) is None:
        node.refuse("weights whose groups are reordered (g_idx) are not supported")
    if node.attribute("weight_prepacked", 0):
        node.refuse("weights that are packed for one processor are not supported")
    weights = node.constant(_weights(node), node.dtype())
    made = product(node[0], weights)
    if node.has(5):
        made = node.emit(made)
        made = relax.op.add(made, node.cast(node[5], dtype_of(made)))
    return narrowed(node, made, node.dtype())


def _is_in_order(node: OnnxNode) -> bool:
    groups = node.needed(4, "g_idx")
    return np.array_equal(
        groups[: node.required("K")], np.arange(node.required("K")) // node.required("block_size")
    )


def _weights(node: OnnxNode) -> np.ndarray:
    """(K, N), in the type in which products are summed."""
    rows, columns = node.required("N"), node.required("K")
    bits, block = node.attribute("bits", 4), node.required("block_size")
    if bits not in (2, 4, 8):
        node.refuse(f"weights of {bits} bits are not supported, only of 2, 4 and 8")
    blocks = -(-columns // block)
    packed = node.needed(1, "the matrix of weights").reshape(rows, blocks, block * bits // 8)
    numbers = _unpacked(packed, bits).astype("float32")
    scales = node.needed(2, "the scales of the weights").astype("float32").reshape(rows, blocks, 1)
    wide = (numbers - _zero_points(node, rows, blocks, bits)) * scales
    made = wide.reshape(rows, blocks * block)[:, :columns].T
    return np.ascontiguousarray(
        made.astype(wide_type(node.dtype()) if node.dtype() == "float64" else "float32")
    )


def _zero_points(node: OnnxNode, rows: int, blocks: int, bits: int) -> np.ndarray | float:
    if not node.has(3):
        return float(1 << (bits - 1))
    points = node.needed(3, "the zero points of the weights")
    if points.dtype != np.uint8:
        return points.astype("float32").reshape(rows, blocks, 1)
    return _unpacked(points.reshape(rows, -1), bits)[:, :blocks, None].astype("float32")


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """The numbers in the bytes of the last axis, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {"MatMulNBits": _matmul_n_bits}
