"""BatchNormalization: with given statistics one Relax operator, in training with those of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tvm import relax

from ..node import Converted, OnnxNode
from ..values import Dim
from .precise import dtype_of, narrowed, wide_type


def _batch_norm(node: OnnxNode) -> Converted:
    if not node.attribute("spatial", 1):
        return narrowed(node, _of_statistics(node, *_five(node), shape=None), node.dtype())
    asked = [n for n in range(1, len(node.proto.output)) if node.is_asked(n)]
    if node.attribute("training_mode", 0) or (node.version < 14 and asked):
        return _trained(node)
    operands = [node[n] for n in range(5)]
    dtypes = {dtype_of(operand) for operand in operands}
    if dtypes == {wide_type(node.dtype())} and node.rank() > 1:
        made = relax.op.nn.batch_norm(*operands, 1, node.attribute("epsilon", 1e-5), training=False)
        return relax.TupleGetItem(node.emit(made), 0)
    return narrowed(node, _of_statistics(node, *_five(node), shape=_per_channel(node)), node.dtype())


def _five(node: OnnxNode) -> list[relax.Expr]:
    """The operands in the widest of their types, at least float32."""
    dtype = "float64" if any(node.dtype(n) == "float64" for n in range(5)) else "float32"
    return [node.cast(node[n], dtype) for n in range(5)]


def _per_channel(node: OnnxNode) -> list[Dim]:
    """The shape in which values of channels broadcast to the data; data of one axis have one channel."""
    rank = node.rank()
    return [1] if rank == 1 else [node.shape()[1], *[1] * (rank - 2)]


def _of_statistics(
    node: OnnxNode,
    x: relax.Expr,
    scale: relax.Expr,
    shift: relax.Expr,
    mean: relax.Expr,
    variance: relax.Expr,
    shape: Sequence[Dim] | None,
) -> relax.Expr:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, the last four in another ``shape``."""
    if shape is not None:
        scale, shift, mean, variance = (node.reshaped(v, shape) for v in (scale, shift, mean, variance))
    epsilon = node.constant(node.attribute("epsilon", 1e-5), dtype_of(x))
    root = node.emit(relax.op.sqrt(node.emit(relax.op.add(variance, epsilon))))
    centred = node.emit(relax.op.subtract(x, mean))
    scaled = node.emit(relax.op.multiply(node.emit(relax.op.divide(centred, root)), scale))
    return relax.op.add(scaled, shift)


def _trained(node: OnnxNode) -> Converted:
    """With the statistics of the batch: the result, the running mean and variance, and those of the batch."""
    x, scale, shift, mean, variance = _five(node)
    axes = [axis for axis in range(node.rank()) if axis != 1]
    batch_mean = node.emit(relax.op.mean(x, axes))
    batch_variance = node.emit(relax.op.variance(x, axes))
    made = _of_statistics(node, x, scale, shift, batch_mean, batch_variance, _per_channel(node))
    kept = node.attribute("momentum", 0.9)

    def running(old: relax.Expr, new: relax.Expr) -> relax.Expr:
        dtype = dtype_of(old)
        parts = (
            node.emit(relax.op.multiply(value, node.constant(factor, dtype)))
            for value, factor in ((old, kept), (new, 1 - kept))
        )
        return narrowed(node, relax.op.add(*parts), node.dtype(3))

    saved = [narrowed(node, value, node.dtype(3)) for value in (batch_mean, batch_variance)]
    return [
        narrowed(node, made, node.dtype()),
        running(mean, batch_mean),
        running(variance, batch_variance),
        *saved,
    ]


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"BatchNormalization": _batch_norm}
