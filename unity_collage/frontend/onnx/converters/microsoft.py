"""Operators of com.microsoft that fuse others of the standard: norms of sums, embeddings, activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax

from ..broadcasting import broadcast
from ..node import Converted, OnnxNode
from .convolution import convolution
from .normalisation import CONVERTERS as NORMS
from .normalisation import inverse_root, layer_norm, rms_norm, statistics
from .precise import dtype_of, narrowed, widened
from .products import gemm

_EPSILON = 1e-12
"""The default epsilon of norms of sums."""


def _skip_layer_norm(node: OnnxNode) -> Converted:
    """layer_norm(input + skip + bias): the norm, mean, 1 / standard deviation, and the sum."""
    total = _sum(node, 4)
    last = [node.rank() - 1]
    made = layer_norm(node, total, node[2], node.optional(3), last, _EPSILON)
    asked = node.is_asked(1) or node.is_asked(2)
    mean, inverse = statistics(node, total, last, _EPSILON) if asked else (None, None)
    return [narrowed(node, made, node.dtype()), mean, inverse, narrowed(node, total, node.dtype())]


def _skip_rms_norm(node: OnnxNode) -> Converted:
    """rms_norm(input + skip + bias): the norm, nothing, 1 / root of the mean square, and the sum."""
    total = _sum(node, 3)
    last = [node.rank() - 1]
    made = rms_norm(node, total, node[2], last, _EPSILON)
    inverse = inverse_root(node, total, last, _EPSILON) if node.is_asked(2) else None
    return [narrowed(node, made, node.dtype()), None, inverse, narrowed(node, total, node.dtype())]


def _sum(node: OnnxNode, bias: int) -> relax.Expr:
    """input + skip + bias, where the skip may have no or one batch."""
    terms = [node[0], node[1], *([node[bias]] if node.has(bias) else [])]
    first, *others = broadcast(node, *(widened(node, term) for term in terms))
    for other in others:
        first = node.emit(relax.op.add(first, other))
    return first


def _embed_layer_norm(node: OnnxNode) -> Converted:
    """The norm of the sum of embeddings, how many tokens each sequence has, and the sum."""
    ids, segments, words, positions, of_segments, gamma, beta = range(7)
    batch, rows = node.shape(ids)
    total = _looked_up(node, words, node[ids])
    if node.has(8):
        placed = _looked_up(node, positions, node[8])
    else:
        steps = node.emit(relax.op.arange(0, rows, 1, "int64"))
        placed = _looked_up(node, positions, steps)
    total = node.emit(relax.op.add(total, placed))
    if node.has(of_segments) and node.has(segments):
        total = node.emit(relax.op.add(total, _looked_up(node, of_segments, node[segments])))
    made = layer_norm(node, total, node[gamma], node[beta], [2], _EPSILON)
    if node.has(7):
        is_token = node.emit(relax.op.equal(node[7], node.constant(1, node.dtype(7))))
        counts = relax.op.sum(node.cast(is_token, "int32"), [1])
    else:
        counts = relax.op.full([batch], node.constant(0, "int32"), "int32")
    dtype = node.dtype(words)
    return [narrowed(node, made, dtype), node.emit(counts), narrowed(node, total, dtype)]


def _looked_up(node: OnnxNode, table: int, ids: relax.Expr) -> relax.Expr:
    return widened(node, node.emit(relax.op.take(node[table], ids, 0, mode="fast")))


def _fused_conv(node: OnnxNode) -> Converted:
    """The node's activation of a convolution plus the fourth operand."""
    made = convolution(node)
    if node.has(3):
        made = relax.op.add(node.emit(made), node[3])
    parameters = list(node.attribute("activation_params", None) or [])
    return _activated(node, made, parameters)


def _fused_gemm(node: OnnxNode) -> Converted:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    parameters = [node.attribute(name) for name in names if name in node.attributes]
    return _activated(node, narrowed(node, gemm(node), node.dtype()), parameters)


def _activated(node: OnnxNode, x: relax.Expr, parameters: list[float]) -> relax.Expr:
    """The node's activation of ``x``; neither is emitted yet."""
    name = node.attribute("activation", "")
    plain = {"Relu": relax.op.nn.relu, "Sigmoid": relax.op.sigmoid, "Tanh": relax.op.tanh}
    if not name:
        return x
    x = node.emit(x)
    if name in plain:
        return plain[name](x)
    if name == "LeakyRelu":
        return relax.op.nn.leakyrelu(x, *(parameters or [0.01]))
    if name == "Clip" and len(parameters) == 2:
        return relax.op.clip(x, *parameters)
    if name != "HardSigmoid":
        node.refuse(f"its activation {name!r} is not supported")
    alpha, beta = parameters or (0.2, 0.5)
    dtype = dtype_of(x)
    line = node.emit(relax.op.multiply(x, node.constant(alpha, dtype)))
    return relax.op.clip(node.emit(relax.op.add(line, node.constant(beta, dtype))), 0, 1)


MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "EmbedLayerNormalization": _embed_layer_norm,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "SimplifiedLayerNormalization": NORMS["SimplifiedLayerNormalization"],
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
}
