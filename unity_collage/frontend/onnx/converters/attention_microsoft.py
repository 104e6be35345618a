"""The attentions of com.microsoft: MultiHeadAttention, Attention, and RotaryEmbedding with positions first.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tvm import ir, relax, te, tirx

from ..broadcasting import broadcast
from ..node import Converted, OnnxNode
from ..symbolic import are_equal
from ..values import Dim
from .attention import appended, rotated, rows_of, split_heads, without_heads
from .attention_core import Attention, Results
from .attention_masks import Visible, bias_of
from .precise import dtype_of, narrowed, wide_type, widened


def _multi_head(node: OnnxNode) -> Converted:
    heads = node.required("num_heads")
    if node.has(8) or node.has(9):
        node.refuse("a shared buffer of past keys (past_sequence_length, cache_indirection) is not supported")
    q, k, v = _operands(node, heads)
    past: Dim = 0
    if node.has(6) and node.has(7):
        past = node.shape(6)[2]
        k, v = (appended(node, node[n], new) for n, new in ((6, k), (7, v)))
    filler = node.attribute("mask_filter_value", -10000.0)
    padding = None if not node.has(4) else _key_mask(node, node[4], node.dims(k)[2], filler)
    made = _attended(node, q, k, v, past, padding, node.optional(5))
    scores = narrowed(node, made.raw, node.dtype()) if node.is_asked(3) else None
    return [without_heads(node, made.output), k, v, scores]


def _attended(
    node: OnnxNode,
    q: relax.Expr,
    k: relax.Expr,
    v: relax.Expr,
    past: Dim,
    padding: relax.Expr | None,
    added: relax.Expr | None,
) -> Results:
    """The attention; ``padding`` and ``added`` are masks of numbers, which never hide all keys."""
    sizes, dtype = [*node.dims(q)[:3], node.dims(k)[2]], dtype_of(q)
    mask = padding
    if added is not None:
        wide = node.cast(added, wide_type(dtype))
        mask = wide if padding is None else node.emit(relax.op.add(*broadcast(node, wide, padding)))
    visible = Visible(right=0, offset=past) if node.attribute("unidirectional", 0) else Visible()
    bias = bias_of(node, visible, mask, sizes, dtype, hides=False)
    scale = node.attribute("scale", 0.0) or None
    return Attention(node, q, k, v, scale, bias=bias).results()


def _operands(node: OnnxNode, heads: int) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Queries, keys and values with heads, which may be packed, and their biases."""
    if node.rank(0) == 5:  # (batch, rows, heads, 3, size)
        parts = [_picked(node, node[0], n, 3) for n in range(3)]
    elif node.has(1) and node.rank(1) == 5:  # (batch, rows, heads, 2, size)
        parts = [node[0], *(_picked(node, node[1], n, 3) for n in range(2))]
    else:
        if not node.has(1) or not node.has(2):
            node.refuse("it has neither keys and values nor packed ones")
        parts = [node[0], node[1], node[2]]
    bias = node.optional(3)
    made, begin = [], 0
    for part in parts:
        dims = node.dims(part)
        if len(dims) == 4:  # keys and values of another sequence have heads already
            made.append(part)
            begin += _number(node, dims[1] * dims[3]) if bias is not None else 0
            continue
        if bias is not None:
            width = _number(node, dims[2])
            part = node.emit(relax.op.add(part, _slice(node, bias, begin, begin + width)))
            begin += width
        made.append(split_heads(node, part, heads))
    if bias is not None and (width := _number(node, node.dims(bias)[0])) != begin:
        node.refuse(f"its bias has {width} numbers, and its operands {begin} columns")
    return made[0], made[1], made[2]


def _number(node: OnnxNode, size: Dim) -> int:
    if not isinstance(size, int):
        node.refuse("the width of its operands is not known")
    return size


def _slice(node: OnnxNode, value: relax.Expr, begin: int, end: int, axis: int = 0) -> relax.Expr:
    return node.emit(relax.op.strided_slice(value, [axis], [begin], [end], [1], assume_inbound=True))


def _picked(node: OnnxNode, packed: relax.Expr, index: int, axis: int) -> relax.Expr:
    """One of the tensors packed at ``axis`` of (batch, rows, heads, n, size), as (batch, rows, heads * size)."""
    batch, rows, heads, _, size = node.dims(packed)
    return node.reshaped(_slice(node, packed, index, index + 1, axis), [batch, rows, heads * size])


def _key_mask(node: OnnxNode, mask: relax.Expr, keys: Dim, filler: float) -> relax.Expr:
    """A mask of com.microsoft as numbers (B, 1, 1 or S, T): 0, or the filler where a key is hidden.

    It is (B,), lengths; (2 B,), ends and begins; (3 B + 2,), lengths and sums; or ones and zeros of
    (B, T) or (B, S, T).
    """
    dims, dtype = node.dims(mask), "float32"
    if len(dims) == 4:
        node.refuse("a mask of (batch, 1, most, most) is not supported; give one of (batch, rows, keys)")
    if len(dims) > 1:
        if any(are_equal(*pair) is False for pair in ((dims[0], node.shape(0)[0]), (dims[-1], keys))):
            node.refuse(
                f"its mask has the shape {tuple(dims)}, for {node.shape(0)[0]} sequences and {keys} keys"
            )
        shape = [dims[0], 1, *([1] if len(dims) == 2 else []), *dims[1:]]
        seen = node.emit(relax.op.greater(mask, node.constant(0, dtype_of(mask))))
        numbers = node.emit(relax.op.where(seen, node.constant(0, dtype), node.constant(filler, dtype)))
        return node.reshaped(numbers, shape)
    batch = node.shape(0)[0]
    is_known = isinstance(batch, int) and isinstance(dims[0], int)
    if is_known and dims[0] not in (batch, 2 * batch, 3 * batch + 2):
        node.refuse(f"its mask has {dims[0]} numbers, for {batch} sequences")
    has_begins = bool(are_equal(dims[0], batch * 2)) and not are_equal(dims[0], batch)

    def masked(lengths: te.Tensor, batch: Dim, keys: Dim) -> te.Tensor:
        def element(b: ir.Expr, _h: ir.Expr, _i: ir.Expr, j: ir.Expr) -> ir.Expr:
            seen = j < lengths(b)
            if has_begins:
                seen = tirx.all(seen, j >= lengths(b + batch))
            return tirx.Select(seen, tirx.const(0, dtype), tirx.const(filler, dtype))

        return te.compute([batch, 1, 1, keys], element, name="masked")

    return node.emit(node.builder.call_te(masked, mask, batch, keys))


def _attention(node: OnnxNode) -> Converted:
    """input (B, S, I) times weights (I, 3 H D), then an attention; past and present are (2, B, H, P, D)."""
    heads = node.required("num_heads")
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        node.refuse("rotary embeddings and shared buffers of past keys are not supported in it")
    widths = node.attribute("qkv_hidden_sizes") or [_number(node, node.shape(1)[1]) // 3] * 3
    product = node.emit(relax.op.matmul(widened(node, node[0]), widened(node, node[1])))
    if node.has(2):
        product = node.emit(relax.op.add(product, widened(node, node[2])))
    product, parts, begin = node.cast(product, node.dtype()), [], 0
    for width in widths:
        parts.append(split_heads(node, _slice(node, product, begin, begin + width, 2), heads))
        begin += width
    q, k, v = parts
    past: Dim = 0
    if node.has(4):
        past = node.shape(4)[3]
        k, v = (appended(node, _plane(node, node[4], n), new) for n, new in ((0, k), (1, v)))
    filler = node.attribute("mask_filter_value", -10000.0)
    padding = None if not node.has(3) else _key_mask(node, node[3], node.dims(k)[2], filler)
    made = _attended(node, q, k, v, past, padding, node.optional(5))
    present = relax.op.stack([k, v], 0) if node.is_asked(1) else None
    return [without_heads(node, made.output), present]


def _plane(node: OnnxNode, past: relax.Expr, index: int) -> relax.Expr:
    return node.reshaped(_slice(node, past, index, index + 1), node.dims(past)[1:])


def _rotary(node: OnnxNode) -> Converted:
    """Like the standard's operator, but with positions before the caches: (B, S), or that of the first token."""
    is_flat = node.rank() == 3
    if node.attribute("is_packed_batching", 0) or node.attribute("scale", 1.0) != 1.0:
        node.refuse("packed batches and a scale are not supported")
    x, half = node[0], _number(node, node.shape(2)[1])
    width = node.attribute("rotary_embedding_dim", 0)
    if is_flat:
        heads = node.attribute("num_heads", 0) or _number(node, node.shape()[2]) // (2 * half)
        x = split_heads(node, x, heads)
    rows = node.dims(x)[2]
    positions = node.cast(node[1], "int64")
    if node.rank(1) < 2:
        positions = positions_from(node, node.reshaped(positions, [1]), [1, rows])
    cos, sin = (widened(node, rows_of(node, node[n], positions)) for n in (2, 3))
    made = rotated(node, widened(node, x), cos, sin, width, bool(node.attribute("interleaved", 0)))
    made = node.cast(node.emit(made), node.dtype())
    return without_heads(node, made) if is_flat else made


def positions_from(node: OnnxNode, first: relax.Expr, shape: Sequence[Dim]) -> relax.Expr:
    """The positions (B, S) of tokens of which the first are at ``first`` (B,)."""

    def positions(begin: te.Tensor, shape: Sequence[Dim]) -> te.Tensor:
        return te.compute(list(shape), lambda b, i: begin(b) + i, name="positions", tag="injective")

    return node.emit(node.builder.call_te(positions, first, list(shape)))


MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "RotaryEmbedding": _rotary,
}
