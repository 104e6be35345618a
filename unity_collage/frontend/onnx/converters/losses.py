"""Negative log-likelihood and cross-entropy, for evaluation and training graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tvm import ir, relax, te, tirx

from ..equal_sizes import require_shape
from ..node import Converted, OnnxNode
from .precise import narrowed, widened
from .runtime_shapes import from_the_end, results


def _nll(node: OnnxNode) -> Converted:
    return narrowed(node, _loss(node, widened(node, node[0])), node.dtype())


def _cross_entropy(node: OnnxNode) -> Converted:
    """The negative log-likelihood of the logarithm of the softmax, which is the second result."""
    scores, rank = widened(node, node[0]), node.rank()
    order = [0, *range(2, rank), 1]
    moved = node.emit(relax.op.permute_dims(scores, order))
    logs = node.emit(relax.op.nn.log_softmax(moved, rank - 1))
    logs = node.emit(relax.op.permute_dims(logs, [0, rank - 1, *range(1, rank - 1)]))
    loss = narrowed(node, _loss(node, logs), node.dtype())
    return [loss, narrowed(node, logs, node.dtype()) if node.is_asked(1) else None]


def _loss(node: OnnxNode, logs: relax.Expr) -> relax.Expr:
    """Of logarithms (N, C, d...), classes (N, d...) and weights (C).

    Ignored classes count neither in the sum nor in its divisor.
    """
    ignored, reduction = node.attribute("ignore_index"), node.attribute("reduction", "mean")
    if reduction not in ("none", "sum", "mean"):
        node.refuse(f"there is no reduction {reduction!r}")
    batch, classes, *places = node.shape()
    require_shape(node, "its target", node.shape(1), [batch, *places])
    if node.has(2):
        require_shape(node, "its weight", node.shape(2), [classes])
    weights = [widened(node, node[2])] if node.has(2) else []

    def kernel(logs: te.Tensor, target: te.Tensor, *weights: te.Tensor) -> list[te.Tensor]:
        return _losses(logs, target, weights, ignored)

    losses, shares = results(node, kernel, 2, logs, node[1], *weights)
    if reduction == "none":
        return losses
    total = relax.op.sum(losses)
    if reduction == "sum":
        return total
    if not weights and ignored is None:
        return relax.op.mean(losses)
    return relax.op.divide(node.emit(total), node.emit(relax.op.sum(shares)))


def _losses(
    logs: te.Tensor, target: te.Tensor, weights: Sequence[te.Tensor], ignored: int | None
) -> list[te.Tensor]:
    """The loss of each sample and its share in the mean."""
    dtype = str(logs.dtype)

    def counts(value: ir.Expr, place: Sequence[ir.Expr]) -> ir.Expr:
        if ignored is None:
            return value
        is_ignored = target(*place).equal(tirx.const(ignored, str(target.dtype)))
        return tirx.Select(is_ignored, tirx.const(0, dtype), value)

    def index(place: Sequence[ir.Expr]) -> ir.Expr:
        return from_the_end(target(*place), logs.shape[1])

    def weight(place: Sequence[ir.Expr]) -> ir.Expr:
        return weights[0](index(place)) if weights else tirx.const(1, dtype)

    def loss(*place: ir.Expr) -> ir.Expr:
        found = tirx.const(0, dtype) - logs(place[0], index(place), *place[1:]) * weight(place)
        return counts(found, place)

    shares = te.compute(target.shape, lambda *place: counts(weight(place), place), name="share")
    return [te.compute(target.shape, loss, name="loss"), shares]


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "NegativeLogLikelihoodLoss": _nll,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}
