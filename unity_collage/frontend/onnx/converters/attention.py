"""Attention and RotaryEmbedding of the standard, and the normalised embeddings of positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
from tvm import relax, te

from ..node import Converted, OnnxNode
from ..symbolic import are_equal
from ..values import Dim
from .attention_core import Attention
from .attention_masks import Visible, bias_of
from .precise import dtype_of, narrowed, rank_of, widened

_CAPPED, _BIASED, _PROBABILITIES = 1, 2, 3
"""The fourth result; by default the scaled scores."""


def _attention(node: OnnxNode) -> Converted:
    is_flat = node.rank() == 3
    q, k, v = (_with_heads(node, n, name) for n, name in enumerate(("q", "kv", "kv")))
    past: Dim = 0
    if node.has(4) != node.has(5):
        node.refuse("past_key and past_value are given only together")
    if node.has(4):
        past = node.shape(4)[2]
        k, v = (appended(node, node[n], new) for n, new in ((4, k), (5, v)))
    batch, heads, rows, _ = node.dims(q)
    visible = _visible(node, rows, past)
    bias = bias_of(node, visible, node.optional(3), [batch, heads, rows, node.dims(k)[2]], node.dtype())
    precision = node.attribute("softmax_precision")
    made = Attention(
        node,
        q,
        k,
        v,
        node.attribute("scale"),
        node.attribute("softcap", 0.0),
        bias,
        onnx.helper.tensor_dtype_to_np_dtype(precision).name if precision else "",
    ).results()
    mode = node.attribute("qk_matmul_output_mode", 0)
    steps = {_CAPPED: made.capped, _BIASED: made.biased, _PROBABILITIES: made.probabilities}
    output = without_heads(node, made.output) if is_flat else made.output
    scores = narrowed(node, steps.get(mode, made.raw), node.dtype()) if node.is_asked(3) else None
    return [output, k, v, scores]


def _with_heads(node: OnnxNode, position: int, name: str) -> relax.Expr:
    """An operand as (batch, heads, rows, size)."""
    if node.rank(position) == 4:
        return node[position]
    return split_heads(node, node[position], node.required(f"{name}_num_heads"))


def appended(node: OnnxNode, past: relax.Expr, new: relax.Expr) -> relax.Expr:
    """(batch, heads, P, size) and (batch, heads, S, size) -> (batch, heads, P + S, size)."""
    batch, heads, _, size = node.dims(new)
    shape = [batch, heads, node.dims(past)[2], size]
    if not all(are_equal(a, b) for a, b in zip(shape, node.dims(past), strict=True)):
        past = node.builder.match_cast(past, relax.TensorType(shape, dtype_of(past)))
    return node.emit(relax.op.concat([past, new], 2))


def split_heads(node: OnnxNode, x: relax.Expr, heads: int) -> relax.Expr:
    """(batch, rows, heads * size) -> (batch, heads, rows, size)."""
    batch, rows, width = node.dims(x)
    if isinstance(width, int) and width % heads:
        node.refuse(f"a width of {width} is not divisible by {heads} heads")
    apart = node.reshaped(x, [batch, rows, heads, width // heads])
    return node.emit(relax.op.permute_dims(apart, [0, 2, 1, 3]))


def without_heads(node: OnnxNode, x: relax.Expr) -> relax.Expr:
    """(batch, heads, rows, size) -> (batch, rows, heads * size), not emitted."""
    batch, heads, rows, size = node.dims(x)
    moved = node.emit(relax.op.permute_dims(x, [0, 2, 1, 3]))
    return relax.op.reshape(moved, [batch, rows, heads * size])


def _visible(node: OnnxNode, rows: Dim, past: Dim) -> Visible:
    left, right = (node.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    right = 0 if node.attribute("is_causal", 0) else right
    sides = (None if left < 0 else left, None if right < 0 else right)
    if not node.has(6):
        return Visible(*sides, past)
    if node.has(4):
        node.refuse("nonpad_kv_seqlen is not defined together with past_key")
    lengths = node.cast(node[6], "int64")
    if sides == (None, None):
        return Visible(lengths=lengths)

    def offsets(counts: te.Tensor, rows: Dim) -> te.Tensor:
        return te.compute(counts.shape, lambda b: counts(b) - rows, name="offsets", tag="injective")

    return Visible(*sides, offsets=node.emit(node.builder.call_te(offsets, lengths, rows)), lengths=lengths)


def _rotary(node: OnnxNode) -> Converted:
    """x (batch, rows, heads * size) or (batch, heads, rows, size), caches (positions, size / 2) or for each row."""
    flat = node.rank() == 3
    heads = node.attribute("num_heads", 0)
    if flat and not heads:
        node.refuse("its operand has three axes, and it has no num_heads")
    x = split_heads(node, node[0], heads) if flat else node[0]
    cos, sin = (rows_of(node, node[n], node.optional(3)) for n in (1, 2))
    made = rotated(
        node,
        widened(node, x),
        widened(node, cos),
        widened(node, sin),
        node.attribute("rotary_embedding_dim", 0),
        bool(node.attribute("interleaved", 0)),
    )
    made = node.cast(node.emit(made), node.dtype())
    return without_heads(node, made) if flat else made


def rows_of(node: OnnxNode, cache: relax.Expr, positions: relax.Expr | None) -> relax.Expr:
    """The rows of a cache for all positions, (batch, 1, rows, half)."""
    if positions is not None:
        cache = node.emit(relax.op.take(cache, positions, 0, mode="fast"))
    batch, rows, half = node.dims(cache)
    return node.reshaped(cache, [batch, 1, rows, half])


def rotated(
    node: OnnxNode, x: relax.Expr, cos: relax.Expr, sin: relax.Expr, width: int, interleaved: bool
) -> relax.Expr:
    """``x`` (batch, heads, rows, size) with its first ``width`` elements, or all, turned in pairs.

    A pair is an element of each half of them, or two neighbours if they are ``interleaved``.
    """
    *lead, size = node.dims(x)
    if not isinstance(size, int):
        node.refuse("the size of a head is not known")
    width = width or size
    if width % 2 or width > size:
        node.refuse(f"{width} elements of heads of {size} cannot be turned in pairs")
    half = width // 2
    turning = x if width == size else _part(node, x, 0, width)
    if interleaved:
        pairs = node.reshaped(turning, [*lead, half, 2])
        a, b = (node.reshaped(_part(node, pairs, n, n + 1), [*lead, half]) for n in (0, 1))
    else:
        a, b = _part(node, turning, 0, half), _part(node, turning, half, width)
    first = node.emit(relax.op.subtract(_times(node, a, cos), _times(node, b, sin)))
    second = node.emit(relax.op.add(_times(node, a, sin), _times(node, b, cos)))
    if interleaved:
        columns = [node.reshaped(part, [*lead, half, 1]) for part in (first, second)]
        made = relax.op.reshape(node.emit(relax.op.concat(columns, -1)), [*lead, width])
    else:
        made = relax.op.concat([first, second], -1)
    return made if width == size else relax.op.concat([node.emit(made), _part(node, x, width, size)], -1)


def _times(node: OnnxNode, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.multiply(a, b))


def _part(node: OnnxNode, x: relax.Expr, begin: int, end: int) -> relax.Expr:
    """Elements of the last axis."""
    return node.emit(relax.op.strided_slice(x, [rank_of(x) - 1], [begin], [end], [1], assume_inbound=True))


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
}
