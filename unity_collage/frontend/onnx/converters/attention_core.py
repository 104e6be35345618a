"""softmax(q k' scale + bias) v, as the standard and the operators of com.microsoft need it.

It is two products with a softmax between them, which the optimiser knows. Queries that share a head of keys have an
axis of their own, so that keys and values are not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax, te

from ..node import OnnxNode
from ..symbolic import are_equal
from ..values import Dim
from .attention_masks import Bias
from .precise import dtype_of, is_narrow


@dataclass(slots=True)
class Results:
    """The steps of an attention."""

    output: relax.Expr
    """(B, H, S, Dv), in the type of the values."""
    raw: relax.Expr
    """The scaled scores (B, H, S, T), as the next three."""
    capped: relax.Expr
    biased: relax.Expr
    probabilities: relax.Expr


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention of ``q`` (B, H, S, D), ``k`` (B, Hk, T, D) and ``v`` (B, Hk, T, Dv); H is a multiple of Hk."""

    node: OnnxNode
    q: relax.Expr
    k: relax.Expr
    v: relax.Expr
    scale: float | None = None
    softcap: float = 0
    bias: Bias | None = None
    precision: str = ""
    """The type of the softmax, if it is wider than that of the scores."""
    sinks: relax.Expr | None = None
    """(H,): a score for each head that takes part in the softmax without a value."""
    smooth: bool = False
    """Whether each head has a sink of score 0."""

    def results(self) -> Results:
        """Emit it."""
        node, dtype = self.node, dtype_of(self.q)
        batch, heads, rows, size = node.dims(self.q)
        shared, keys = node.dims(self.k)[1:3]
        k, v = (self._of_sizes(x, batch, keys) for x in (self.k, self.v))
        if not isinstance(heads, int) or not isinstance(shared, int) or heads % max(shared, 1):
            node.refuse(f"{heads} heads of queries are not known to share {shared} heads of keys")
        group = heads // max(shared, 1)
        grouped = [batch, shared, group, rows] if group > 1 else [batch, heads, rows]
        q = node.reshaped(self.q, [*grouped, size]) if group > 1 else self.q
        k, v = ((self._unsqueezed(x) if group > 1 else x) for x in (k, v))
        rank = len(grouped) + 1
        transposed = node.emit(relax.op.permute_dims(k, [*range(rank - 2), rank - 1, rank - 2]))
        wide = "float32" if is_narrow(dtype) else None
        scores = node.emit(relax.op.matmul(q, transposed, wide))
        scale = self._scale(size)
        raw = scores = scores if scale == 1 else node.emit(self._times(scores, scale))
        if self.softcap:
            small = node.emit(self._times(scores, 1 / self.softcap))
            scores = node.emit(self._times(node.emit(relax.op.tanh(small)), self.softcap))
        capped = scores
        bias = None if self.bias is None else self._grouped_bias(self.bias.value, shared, group)
        if bias is not None:
            scores = node.emit(relax.op.add(scores, bias))
        weights = node.cast(self._softmax(scores, group), dtype)
        output = node.emit(relax.op.matmul(weights, v, wide))
        if bias is not None and self.bias is not None and self.bias.may_hide_rows:
            weights, output = (self._shown(x, bias) for x in (weights, output))
        output = node.cast(output, dtype)
        whole = [batch, heads, rows]
        if group == 1:
            return Results(output, raw, capped, scores, weights)
        steps = (node.reshaped(x, [*whole, keys]) for x in (raw, capped, scores, weights))
        return Results(node.reshaped(output, [*whole, node.dims(v)[-1]]), *steps)

    def _of_sizes(self, x: relax.Expr, batch: Dim, keys: Dim) -> relax.Expr:
        """``x`` with these sizes; where only the program knows its sizes, it compares them."""
        dims = self.node.dims(x)
        if all(are_equal(*pair) is not None for pair in ((dims[0], batch), (dims[2], keys))):
            return x
        shape = [batch, dims[1], keys, dims[3]]
        return self.node.builder.match_cast(x, relax.TensorType(shape, dtype_of(x)))

    def _unsqueezed(self, x: relax.Expr) -> relax.Expr:
        batch, heads, *rest = self.node.dims(x)
        return self.node.reshaped(x, [batch, heads, 1, *rest])

    def _scale(self, size: Dim) -> float:
        if self.scale is not None:
            return self.scale
        if not isinstance(size, int):
            self.node.refuse("the size of a head is not known, and it has no scale")
        return 1 / np.sqrt(size)

    def _times(self, x: relax.Expr, factor: float) -> relax.Expr:
        return relax.op.multiply(x, self.node.constant(factor, dtype_of(x)))

    def _grouped_bias(self, bias: relax.Expr, shared: int, group: int) -> relax.Expr:
        if group == 1:
            return bias
        batch, heads, rows, keys = self.node.dims(bias)
        split = [1, 1] if isinstance(heads, int) and heads == 1 else [shared, group]
        return self.node.reshaped(bias, [batch, *split, rows, keys])

    def _softmax(self, scores: relax.Expr, group: int) -> relax.Expr:
        node = self.node
        precise = {"float16": 0, "bfloat16": 0, "float32": 1, "float64": 2}
        if self.precision and precise[self.precision] > precise[dtype_of(scores)]:
            scores = node.cast(scores, self.precision)
        if self.sinks is None and not self.smooth:
            return node.emit(relax.op.nn.softmax(scores, -1))
        dims, dtype = node.dims(scores), dtype_of(scores)
        if self.sinks is None:
            sink = node.constant(0, dtype)
        else:
            heads = dims[1:3] if group > 1 else dims[1:2]
            sink = node.reshaped(node.cast(self.sinks, dtype), [1, *heads, 1, 1])
        column = node.emit(relax.op.broadcast_to(sink, [*dims[:-1], 1]))
        both = node.emit(relax.op.nn.softmax(node.emit(relax.op.concat([scores, column], -1)), -1))
        return _without_last(node, both, dims)

    def _shown(self, x: relax.Expr, bias: relax.Expr) -> relax.Expr:
        """``x`` with zeros in the rows of queries that see no key."""
        node = self.node
        dtype = dtype_of(bias)
        seen = node.emit(relax.op.not_equal(bias, node.constant(-np.inf, dtype)))
        one, zero = node.constant(1, "float32"), node.constant(0, "float32")
        most = node.emit(relax.op.max(node.emit(relax.op.where(seen, one, zero)), -1, keepdims=True))
        any_seen = node.emit(relax.op.astype(most, "bool"))
        return node.emit(relax.op.where(any_seen, x, node.constant(0, dtype_of(x))))


def _without_last(node: OnnxNode, x: relax.Expr, dims: Sequence[Dim]) -> relax.Expr:
    """``x`` up to the sizes ``dims``."""

    def without_last(x: te.Tensor, dims: Sequence[Dim]) -> te.Tensor:
        return te.compute(list(dims), lambda *place: x(*place), name="cut", tag="injective")

    return node.emit(node.builder.call_te(without_last, x, list(dims)))
