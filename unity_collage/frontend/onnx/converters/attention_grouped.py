"""GroupQueryAttention of com.microsoft: an attention with keys and values of earlier steps in an operand.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#commicrosoftgroupqueryattention
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import ir, relax, te, tirx

from ..node import Converted, OnnxNode
from ..values import Dim
from .attention import rotated, rows_of, split_heads, without_heads
from .attention_core import Attention
from .attention_masks import Visible, bias_of
from .attention_microsoft import positions_from
from .precise import dtype_of, narrowed, widened

_KEY, _PAST, _LENGTHS, _TOTAL, _COS, _POSITIONS, _BIAS, _SINK = 1, 3, 5, 6, 7, 9, 10, 11


def _group_query(node: OnnxNode) -> Converted:
    """The output, and present keys and values (B, Hk, T, D), where T is the larger of the past and the total length."""
    if node.attribute("smooth_softmax", 0) > 0 and node.has(_SINK):
        node.refuse("smooth_softmax is not defined together with head_sink")
    if any(node.attribute(name, "NONE") not in ("NONE", "") for name in ("k_quant_type", "v_quant_type")):
        node.refuse("quantised keys and values are not supported")
    if not node.attribute("causal", 1) or node.attribute("sliding_window_cache", 0):
        node.refuse("attention to later tokens and a cache of the size of its window are not supported")
    if any(node.has(position) for position in range(_SINK + 1, len(node.inputs))):
        node.refuse("scales of quantised keys and values, and norms of queries and keys, are not supported")
    q, k, v = _split(node)
    batch, _, rows, _ = node.dims(q)
    lengths = _lengths(node)
    total = node.size(_TOTAL)
    before = _before(node, lengths, rows, total)
    if node.attribute("do_rotary", 0):
        positions = (
            _given_positions(node, rows, total)
            if node.has(_POSITIONS)
            else positions_from(node, before, [batch, rows])
        )
        q, k = (_turned(node, x, positions) for x in (q, k))
    if node.has(_PAST):
        k, v = (_present(node, node[_PAST + n], new, before, total) for n, new in ((0, k), (1, v)))
    window = node.attribute("local_window_size", -1)
    visible = Visible(window - 1 if window > 0 else None, 0, offsets=before)
    mask = node.optional(_BIAS)
    bias = bias_of(node, visible, mask, [*node.dims(q)[:3], node.dims(k)[2]], node.dtype(), hides=False)
    made = Attention(
        node,
        q,
        k,
        v,
        node.attribute("scale", 0.0) or None,
        node.attribute("softcap", 0.0),
        bias,
        sinks=node.optional(_SINK),
        smooth=node.attribute("smooth_softmax", 0) > 0,
    ).results()
    modes = {1: made.biased, 2: made.probabilities}
    scores = modes.get(node.attribute("qk_output", 0), made.raw)
    kept = narrowed(node, scores, node.dtype()) if node.is_asked(3) else None
    return [without_heads(node, made.output), k, v, kept]


def _split(node: OnnxNode) -> list[relax.Expr]:
    """Queries, keys and values with heads; all three are in the first operand if there are no keys."""
    heads, shared = node.required("num_heads"), node.required("kv_num_heads")
    if node.has(_KEY):
        return [split_heads(node, node[n], count) for n, count in ((0, heads), (1, shared), (2, shared))]
    width = node.shape()[2]
    if not isinstance(width, int):
        node.refuse("the width of its packed operand is not known")
    size, begin, parts = width // (heads + 2 * shared), 0, []
    for count in (heads, shared, shared):
        end = begin + count * size
        part = node.emit(relax.op.strided_slice(node[0], [2], [begin], [end], [1], assume_inbound=True))
        parts.append(split_heads(node, part, count))
        begin = end
    return parts


def _lengths(node: OnnxNode) -> relax.Expr:
    """The last position of each sequence, (B,) of int64."""
    return node.cast(node.reshaped(node[_LENGTHS], [node.shape()[0]]), "int64")


def _before(node: OnnxNode, last: relax.Expr, rows: Dim, total: Dim) -> relax.Expr:
    """How many tokens each sequence has before these, (B,): none if these are all."""

    def before(ends: te.Tensor, rows: Dim, total: Dim) -> te.Tensor:
        def element(b: ir.Expr) -> ir.Expr:
            count = ends(b) + 1 - rows
            return tirx.Select(tirx.const(0, "int64") + rows == total, tirx.const(0, "int64"), count)

        return te.compute(ends.shape, element, name="before", tag="injective")

    return node.emit(node.builder.call_te(before, last, rows, total))


def _given_positions(node: OnnxNode, rows: Dim, total: Dim) -> relax.Expr:
    """The positions (B, S) of the operand; of the first prompt only the first position counts."""

    def positions(given: te.Tensor, rows: Dim, total: Dim) -> te.Tensor:
        is_first = tirx.const(0, "int64") + rows == total
        return te.compute(
            given.shape,
            lambda b, s: tirx.Select(is_first, given(0, 0) + s, given(b, s)),
            name="positions",
            tag="injective",
        )

    return node.emit(node.builder.call_te(positions, node.cast(node[_POSITIONS], "int64"), rows, total))


def _turned(node: OnnxNode, x: relax.Expr, positions: relax.Expr) -> relax.Expr:
    cos, sin = (widened(node, rows_of(node, node[n], positions)) for n in (_COS, _COS + 1))
    half = node.dims(cos)[-1]
    interleaved = bool(node.attribute("rotary_interleaved", 0))
    if not isinstance(half, int):
        node.refuse("the width of its caches of cosines is not known")
    made = node.emit(rotated(node, widened(node, x), cos, sin, 2 * half, interleaved))
    return node.cast(made, dtype_of(x))


def _present(node: OnnxNode, past: relax.Expr, new: relax.Expr, before: relax.Expr, total: Dim) -> relax.Expr:
    """The past with new rows behind what each sequence has of it, as long as the past or as the total length."""
    have = node.dims(past)[2]
    zero = tirx.const(0, "int64")
    if isinstance(have, int) and isinstance(total, int):
        most: Dim = max(have, total)
    else:
        most = tirx.max(zero + have, zero + total)

    def present(old: te.Tensor, added: te.Tensor, count: te.Tensor, most: Dim) -> te.Tensor:
        batch, heads, have, size = old.shape
        rows = added.shape[2]

        def element(b: ir.Expr, h: ir.Expr, t: ir.Expr, d: ir.Expr) -> ir.Expr:
            row = t - count(b)
            kept = tirx.if_then_else(t < have, old(b, h, t, d), tirx.const(0, old.dtype))
            return tirx.if_then_else(tirx.all(row >= 0, row < rows), added(b, h, row, d), kept)

        return te.compute([batch, heads, most, size], element, name="present")

    return node.emit(node.builder.call_te(present, past, new, before, most))


MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {"GroupQueryAttention": _group_query}
