"""Which functions compute each sample alone, and where they hold the samples: each rule, checked by numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from unity_collage import reference
from unity_collage.graph.sample_axis import Mixed, SampleAxis, sample_axes
from unity_collage.operators import gru, lstm

N = "n"
"""Stands for the number of samples in a shape; ``(N, 3)`` in one for three times as many."""
Dim = int | str | tuple[str, int]
Body = Callable[..., Any]
nn: Any = op.nn
o: Any = op
FIRST = SampleAxis(0)


def const(*shape: int) -> relax.Expr:
    return relax.const(np.random.default_rng(len(shape)).standard_normal(shape).astype("float32"))


def function(body: Body, shapes: Sequence[Sequence[Dim]]) -> tuple[relax.Function, tirx.Var]:
    """A function of this body; ``body`` gets the number of samples and an operand of each shape."""
    samples = tirx.Var("n", "int64")

    def extent(dim: Dim) -> Any:
        return samples if dim == N else samples * dim[1] if isinstance(dim, tuple) else dim

    params = [
        relax.Var(f"x{i}", relax.TensorType([extent(dim) for dim in shape], "float32"))
        for i, shape in enumerate(shapes)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(samples, *params)))
        builder.emit_func_output(result)
    return builder.get()["main"], samples


def number_of(samples: tirx.Var) -> Any:
    """The number of samples as a tensor."""
    return op.astype(op.shape_to_tensor(relax.ShapeExpr([samples])), "float32")


ALONE: dict[str, tuple[Body, list[tuple[Dim, ...]], SampleAxis]] = {
    "elementwise": (lambda n, x: op.nn.relu(op.add(x, const(3))), [(N, 3)], FIRST),
    "two inputs": (lambda n, x, y: op.multiply(x, y), [(N, 4, 3), (N, 1, 3)], FIRST),
    "same for all": (lambda n, x, y: op.add(x, y), [(4, N, 3), (3,)], SampleAxis(1)),
    "clip": (lambda n, x: op.clip(x, 0, 1), [(N, 3)], FIRST),
    "softmax": (lambda n, x: nn.softmax(x, axis=-1), [(2, N, 3)], SampleAxis(1)),
    "layer norm": (lambda n, x: nn.layer_norm(x, const(3), const(3), axes=[-1]), [(N, 3)], FIRST),
    "batch norm": (
        lambda n, x: nn.batch_norm(
            x, const(3), const(3), const(3), relax.const(np.ones(3, "float32")), axis=1, training=False
        )[0],
        [(N, 3, 2)],
        FIRST,
    ),
    "mean": (lambda n, x: op.mean(x, axis=[0, 2]), [(4, N, 3)], FIRST),
    "kept axes": (lambda n, x: op.max(x, axis=[0], keepdims=True), [(4, N, 3)], SampleAxis(1)),
    "convolution": (lambda n, x: nn.conv2d(x, const(2, 3, 3, 3)), [(N, 3, 5, 5)], FIRST),
    "pooling": (lambda n, x: nn.max_pool2d(x, (2, 2)), [(N, 3, 4, 4)], FIRST),
    "resize": (lambda n, x: o.image.resize2d(x, (4, 4), layout="NCHW"), [(N, 3, 2, 2)], FIRST),
    "rows of a product": (lambda n, x: op.matmul(x, const(3, 5)), [(2, N, 3)], SampleAxis(1)),
    "columns of a product": (lambda n, x: op.matmul(const(5, 3), x), [(3, N)], SampleAxis(1)),
    "a batch of products": (lambda n, x, y: op.matmul(x, y), [(N, 2, 4, 3), (N, 1, 3, 4)], FIRST),
    "permutation": (lambda n, x: op.permute_dims(x, [2, 0, 1]), [(N, 3, 4)], SampleAxis(1)),
    "expanded": (lambda n, x: op.expand_dims(x, [0, 3]), [(N, 3)], SampleAxis(1)),
    "squeezed": (lambda n, x: op.squeeze(x, [0]), [(1, N, 3)], FIRST),
    "joined axes": (lambda n, x: op.reshape(x, (n, 12)), [(N, 3, 4)], FIRST),
    "heads": (lambda n, x: op.reshape(x, (n * 4, 3)), [(N, 4, 3)], SampleAxis(0, 4)),
    "heads apart": (lambda n, x, y: op.add(op.reshape(x, (n, 4, 3)), y), [((N, 4), 3), (N, 1, 1)], FIRST),
    "steps in front": (
        lambda n, x: op.reshape(op.matmul(op.reshape(x, (n * 4, 3)), const(3, 2)), (4, n, 2)),
        [(4, N, 3)],
        SampleAxis(1),
    ),
    "concat": (lambda n, x, y: op.concat([x, y], axis=1), [(N, 2), (N, 3)], FIRST),
    "token in front": (
        lambda n, x: op.concat([op.broadcast_to(const(1, 1, 3), (n, 1, 3)), x], axis=1),
        [(N, 4, 3)],
        FIRST,
    ),
    "zeros": (lambda n, x: op.add(x, op.zeros((n, 3), "float32")), [(N, 3)], FIRST),
    "stack": (lambda n, x, y: op.stack([x, y], axis=0), [(N, 2), (N, 2)], SampleAxis(1)),
    "split": (lambda n, x: op.split(x, 2, axis=1)[1], [(N, 4)], FIRST),
    "slice": (lambda n, x: op.strided_slice(x, [1], [0], [2]), [(N, 4)], FIRST),
    "take": (lambda n, x: op.take(x, relax.const([1, 0]), axis=1), [(N, 4)], FIRST),
    "one row": (lambda n, x: op.take(x, relax.prim_value(1), axis=0), [(3, N, 2)], FIRST),
    "embedding": (
        lambda n, x: op.take(const(5, 3), op.astype(op.abs(x), "int64"), axis=0, mode="clip"),
        [(2, N)],
        SampleAxis(1),
    ),
    "pad": (lambda n, x: nn.pad(x, [0, 0, 1, 2]), [(N, 4)], FIRST),
    "cumsum": (lambda n, x: op.cumsum(x, axis=1), [(N, 4)], FIRST),
    "lstm": (
        lambda n, x, h, c: lstm(x, const(2, 8), h, c, keeps_memory=True),
        [(4, N, 8), (N, 2), (N, 2)],
        SampleAxis(1),
    ),
    "gru": (
        lambda n, x, h: gru(x, const(2, 6), h, const(2), reverse=True),
        [(4, N, 6), (N, 2)],
        SampleAxis(1),
    ),
}


def values(shapes: Sequence[Sequence[Dim]], samples: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    sizes = [
        [samples if d == N else samples * d[1] if isinstance(d, tuple) else d for d in s] for s in shapes
    ]
    return [rng.standard_normal(size).astype("float32") for size in sizes]


def parts(value: np.ndarray, found: SampleAxis | None, samples: int) -> list[np.ndarray]:
    return [value] * samples if found is None else np.split(value, samples, axis=found.axis)


@pytest.mark.parametrize("name", ALONE)
def test_each_sample_is_computed_alone(name: str) -> None:
    body, shapes, expected = ALONE[name]
    func, symbol = function(body, shapes)
    found = sample_axes(func, symbol)
    assert found.results == (expected,)
    inputs = values(shapes, 3)
    (whole,) = reference.run(func, inputs)
    apart = zip(*(parts(x, axis, 3) for x, axis in zip(inputs, found.params, strict=True)), strict=True)
    joined = np.concatenate([reference.run(func, list(one))[0] for one in apart], axis=expected.axis)
    np.testing.assert_allclose(joined, whole, rtol=1e-5, atol=1e-6)


MIXED: dict[str, tuple[Body, list[tuple[Dim, ...]], str]] = {
    "a mean of all": (lambda n, x: op.mean(x, axis=[0]), [(N, 3)], "reduces along the axis"),
    "less their mean": (lambda n, x: op.subtract(x, op.mean(x, [0], True)), [(N, 3)], "reduces along"),
    "a softmax of samples": (lambda n, x: nn.softmax(x, axis=0), [(N, 3)], "works along"),
    "positions": (lambda n, x: op.add(x, op.arange(0, n, 1, "float32")), [(3, N)], "depends on their number"),
    "similarity": (lambda n, x: op.matmul(x, op.permute_dims(x)), [(N, 3)], "two axes of them"),
    "a sum over them": (lambda n, x: op.matmul(op.permute_dims(x), x), [(N, 3)], "adds up over the samples"),
    "joined": (lambda n, x: op.concat([x, x], axis=0), [(N, 3)], "joins along"),
    "the other order": (lambda n, x: op.reshape(x, (3, n)), [(N, 3)], "does not keep the samples"),
    "the first one": (lambda n, x: op.strided_slice(x, [0], [0], [1]), [(N, 3)], "slices along"),
    "reversed": (lambda n, x: op.flip(x, axis=0), [(N, 3)], "is not known"),
    "the same for all": (lambda n, x: op.zeros((3,), "float32"), [(N, 3)], "in a row"),
    "steps first": (
        lambda n, x: op.reshape(op.permute_dims(x, [1, 0, 2]), (4 * n, 3)), [(N, 4, 3)], "in a row"
    ),
    "a slice as long as there are samples": (
        lambda n, x, y: op.add(x, op.strided_slice(y, [0], [n - 1], [n])), [(N, 3), (9, 3)], "their number"
    ),
    "divided by their number": (lambda n, x: op.divide(x, number_of(n)), [(N, 3)], "depends on their number"),
    "the row of their number": (
        lambda n, x: op.add(x, op.take(const(9, 3), relax.prim_value(n - 1), axis=0)), [(N, 3)], "their number"
    ),
    "a kernel that takes their number": (
        lambda n, x: op.add(x, op.call_dps_packed(
            "fill", relax.Tuple([relax.prim_value(n)]), relax.TensorType([3], "float32")
        )), [(N, 3)], "depends on their number",
    ),
    "one row at their number": (
        lambda n, x: op.add(x, op.strided_slice(const(9, 3), [0], [n - 1], [n], assume_inbound=True)),
        [(N, 3)], "depends on their number",
    ),
    "one column at their number": (
        lambda n, x: op.strided_slice(x, [1], [n - 1], [n], assume_inbound=True), [(N, 9)], "their number"
    ),
    "a state that each part would change": (
        lambda n, x, y: op.add(x, op.call_inplace_packed("count", y, inplace_indices=0, ty_args=y.ty)),
        [(N, 3), (3,)], "changes memory in place",
    ),
    "weights of each": (lambda n, x, y: nn.conv2d(x, y), [(1, 3, 5, 5), (N, 3, 3, 3)], "not its data"),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_what_depends_on_other_samples_is_refused(name: str) -> None:
    body, shapes, reason = MIXED[name]
    with pytest.raises(Mixed, match=reason):
        sample_axes(*function(body, shapes))


def test_the_reason_names_the_operator() -> None:
    with pytest.raises(Mixed, match=r"^mean \(gv\): it reduces along the axis of the samples$"):
        sample_axes(*function(lambda n, x: op.mean(x, axis=[0]), [(N, 3)]))
