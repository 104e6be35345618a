"""Matrix products. BLAS multiplies floats in their own precision, and small integers in double precision."""

from __future__ import annotations

import math

import numpy as np

from unity_collage.graph.calls import op_name
from unity_collage.reference.activation import softmax_along
from unity_collage.reference.values import Call, Operator, Value, dtype_of, plain


def exact(x: np.ndarray) -> np.ndarray:
    """``x`` for BLAS: integers of at most 16 bits as doubles; products and sums stay exact."""
    return x.astype(np.float64) if x.dtype.kind in "iub" and x.dtype.itemsize <= 2 else x


def _matmul(call: Call, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    left, right = exact(left), exact(right)
    wanted = dtype_of(call.attrs.out_dtype)
    if wanted is not None and wanted.itemsize > left.dtype.itemsize:
        left, right = left.astype(wanted), right.astype(wanted)
    return left @ right


def _einsum(call: Call, operands: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.einsum(call.attrs.subscripts, *operands, optimize=True)


def _attention(call: Call, query: Value, key: Value, value: Value, bias: Value = None) -> np.ndarray:
    """Scaled dot-product attention on (batch, sequence, head, size) tensors."""
    query, key, value = (np.swapaxes(tensor, 1, 2) for tensor in (query, key, value))
    given = call.attrs.scale
    scores = query @ np.swapaxes(key, 2, 3)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if given is None else given.value)
    if bias is not None:
        scores = scores + bias
    scores = _masked(scores, call.attrs.causal_mask)
    return np.swapaxes(softmax_along(scores, -1).astype(value.dtype) @ value, 1, 2)


def _masked(scores: np.ndarray, mask: str | None) -> np.ndarray:
    """The scores, with minus infinity where a query would see a later key."""
    if mask is None:
        return scores
    queries, keys = scores.shape[-2:]
    diagonal = 0 if mask == "TopLeft" else abs(queries - keys)
    return np.where(np.tri(queries, keys, diagonal, dtype=bool), scores, -np.inf)


def _why_not_attention(call: Call) -> str | None:
    if call.attrs.window_size is not None:
        return f"{op_name(call)} with a sliding window has no numpy reference"
    return None


OPERATORS: dict[str, Operator] = {
    "relax.matmul": Operator(_matmul),
    "relax.einsum": Operator(_einsum),
    "relax.outer": plain(np.outer),
    "relax.nn.attention": Operator(_attention, _why_not_attention),
    "relax.nn.attention_bias": Operator(_attention, _why_not_attention),
}
