"""ExpandTransposed: which transposed convolutions are products, with what follows them, and which stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from prepare_checks import example, module, values
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op

from unity_collage import reference
from unity_collage.passes import ChannelsLast, ExpandTransposed

nn: Any = op.nn
Body = Callable[[relax.Expr], relax.Expr]


def weights(*shape: int) -> relax.Expr:
    return relax.const(values(*shape))


def doubled(x: relax.Expr, dtype: str = "float32", **options: Any) -> relax.Expr:
    """A transposed convolution of 3 channels with windows of 2x2."""
    filters = relax.const(values(3, 5, 2, 2).astype(dtype))
    return nn.conv2d_transpose(x, filters, **({"strides": (2, 2)} | options))


def built(body: Body, *shape: int) -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(x)))
        builder.emit_func_output(out)
    return builder.get()


def operators(mod: IRModule) -> list[str]:
    bindings = [binding for block in mod["main"].body.blocks for binding in block.bindings]
    return [b.value.op.name.removeprefix("relax.") for b in bindings if isinstance(b.value, relax.Call)]


def rewritten(body: Body, *shape: int, tolerance: float = 1e-5) -> list[str]:
    """The operators after the pass; the numbers must not have changed."""
    before = built(body, *shape)
    after = ExpandTransposed()(before)
    inputs = [example(param) for param in before["main"].params]
    (old,), (new,) = (reference.run(mod["main"], inputs, mod) for mod in (before, module(after)))
    np.testing.assert_allclose(old, new, rtol=tolerance, atol=tolerance)
    return operators(after)


PRODUCT = ["permute_dims", "reshape", "matmul", "permute_dims", "reshape", "permute_dims"]

PRODUCTS: dict[str, tuple[Body, tuple[int, ...]]] = {
    "one axis": (lambda x: nn.conv1d_transpose(x, weights(3, 5, 4), strides=4), (2, 3, 7)),
    "two axes": (doubled, (1, 3, 4, 6)),
    "several images": (doubled, (3, 3, 4, 6)),
    "windows of 3x1": (
        lambda x: nn.conv2d_transpose(x, weights(3, 5, 3, 1), strides=(3, 1)),
        (1, 3, 4, 6),
    ),
    "three axes": (
        lambda x: nn.conv3d_transpose(x, weights(3, 5, 2, 1, 3), strides=(2, 1, 3)),
        (2, 3, 2, 3, 4),
    ),
}


@pytest.mark.parametrize(("body", "shape"), PRODUCTS.values(), ids=PRODUCTS)
def test_windows_that_do_not_overlap_are_a_product(body: Body, shape: tuple[int, ...]):
    assert rewritten(body, *shape) == PRODUCT


@pytest.mark.parametrize(
    ("behind", "named"),
    [
        (lambda y: op.add(y, weights(1, 5, 1, 1)), ["add"]),
        (lambda y: op.add(y, weights(5, 1, 1)), ["add"]),
        (lambda y: nn.relu(op.add(y, weights(1, 5, 1, 1))), ["add", "nn.relu"]),
        (lambda y: op.clip(nn.silu(y), 0.0, 1.0), ["nn.silu", "clip"]),
    ],
    ids=["bias", "bias of rank 3", "bias and relu", "two activations"],
)
def test_what_follows_is_computed_before_rows_are_put_in_place(behind: Body, named: list[str]):
    assert rewritten(lambda x: behind(doubled(x)), 1, 3, 4, 6) == [*PRODUCT[:3], *named, *PRODUCT[3:]]


@pytest.mark.parametrize(
    "behind",
    [
        lambda y: op.add(y, weights(1, 5, 8, 12)),
        lambda y: op.add(y, weights(1, 1, 1, 12)),
        lambda y: op.multiply(y, op.tanh(y)),
    ],
    ids=["a summand for each number", "for each column", "two readers"],
)
def test_other_followers_stay_behind(behind: Body):
    assert rewritten(lambda x: behind(doubled(x)), 1, 3, 4, 6)[: len(PRODUCT)] == PRODUCT


STACKED = ["permute_dims", "nn.conv2d", "reshape", "permute_dims", "reshape", "strided_slice", "permute_dims"]
APART = ["permute_dims", *["nn.conv2d"] * 4, "concat", "reshape", "permute_dims", "reshape", "permute_dims"]


def transposed(x: relax.Expr, taps: int, units: int = 5, **options: Any) -> relax.Expr:
    channels = int(x.ty.shape.values[1])
    return nn.conv2d_transpose(x, weights(channels, units, taps, taps), **options)


CONVOLUTIONS: dict[str, tuple[Body, tuple[int, ...], list[str]]] = {
    "a large image of few channels": (
        lambda x: transposed(x, 4, strides=2, padding=1),
        (1, 3, 9, 7),
        STACKED,
    ),
    "a small image of many channels": (
        lambda x: transposed(x, 4, units=256, strides=2, padding=1),
        (1, 192, 4, 4),
        APART,
    ),
    "output padding": (
        lambda x: transposed(x, 3, units=64, strides=2, padding=1, output_padding=1),
        (2, 128, 8, 8),
        APART,
    ),
    "a result that is no multiple of the stride": (
        lambda x: transposed(x, 3, units=64, strides=2, padding=1),
        (1, 128, 8, 8),
        [*APART[:-1], "strided_slice", APART[-1]],
    ),
    "steps of 1": (
        lambda x: transposed(x, 3, strides=1, padding=1),
        (1, 3, 5, 4),
        ["permute_dims", "nn.conv2d", "permute_dims"],
    ),
    "another padding on each side": (
        lambda x: transposed(x, 5, strides=(2, 3), padding=(0, 1, 2, 3)),
        (1, 3, 5, 4),
        STACKED,
    ),
    "more padding than windows": (
        lambda x: transposed(x, 3, strides=2, padding=4),
        (1, 3, 9, 8),
        STACKED,
    ),
    "gaps along one axis": (
        lambda x: nn.conv2d_transpose(x, weights(3, 5, 3, 1), strides=(2, 2)),
        (1, 3, 5, 4),
        STACKED,
    ),
    "one axis": (
        lambda x: nn.conv1d_transpose(x, weights(3, 5, 16), strides=8, padding=4),
        (2, 3, 7),
        ["permute_dims", "nn.conv1d", "reshape", "reshape", "strided_slice", "permute_dims"],
    ),
    "three axes": (
        lambda x: nn.conv3d_transpose(x, weights(3, 5, 4, 3, 2), strides=2, padding=1),
        (1, 3, 4, 3, 2),
        [*STACKED[:1], "nn.conv3d", *STACKED[2:]],
    ),
}


@pytest.mark.parametrize(("body", "shape", "expected"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_windows_that_overlap_are_convolutions(body: Body, shape: tuple[int, ...], expected: list[str]):
    assert rewritten(body, *shape, tolerance=1e-4) == expected


@pytest.mark.parametrize(
    ("body", "shape", "place"),
    [
        (lambda x: transposed(x, 2, strides=2, padding=1), (1, 3, 4, 6), "strided_slice"),
        (lambda x: transposed(x, 2, strides=3), (1, 3, 4, 6), "strided_slice"),
        (lambda x: transposed(x, 4, strides=2), (1, 3, 1, 1), "reshape"),
        (lambda x: transposed(x, 4, strides=2, padding=1), (1, 3, 1, 1), "strided_slice"),
    ],
    ids=["padded", "gaps", "one pixel", "one pixel, padded"],
)
def test_a_product_may_be_cut_to_size(body: Body, shape: tuple[int, ...], place: str):
    found = rewritten(body, *shape)
    assert "matmul" in found and found[-2] == place


@pytest.mark.parametrize("taps, shape, parts", [(4, (1, 3, 9, 7), 1), (3, (1, 128, 8, 8), 4)])
def test_what_follows_convolutions_is_computed_before_pixels_are_put_in_place(
    taps: int, shape: tuple[int, ...], parts: int
):
    units = 64 if parts == 4 else 5

    def body(x: relax.Expr) -> relax.Expr:
        y = transposed(x, taps, units, strides=2, padding=1)
        return nn.relu(op.add(y, weights(1, units, 1, 1)))

    found = rewritten(body, *shape, tolerance=1e-4)
    assert sorted(found[1 : 3 * parts + 1]) == ["add"] * parts + ["nn.conv2d"] * parts + ["nn.relu"] * parts


@pytest.mark.parametrize(
    "body",
    [
        lambda x: doubled(x, dilation=(2, 2)),
        lambda x: doubled(x, strides=(4, 4), output_padding=(3, 3)),
        lambda x: nn.conv2d_transpose(x, weights(3, 1, 2, 2), strides=(2, 2), groups=3),
        lambda x: nn.conv2d_transpose(x, op.abs(weights(3, 5, 2, 2)), strides=(2, 2)),
        lambda x: doubled(op.astype(x, "float16"), "float16", out_dtype="float32"),
    ],
    ids=["dilation", "a result that no window reaches", "groups", "weights not known", "wider sums"],
)
def test_the_others_stay(body: Body):
    before = built(body, 1, 3, 4, 6)
    assert operators(ExpandTransposed()(before)) == operators(before)


@pytest.mark.parametrize(
    "image",
    [
        lambda x: op.strided_slice(op.reshape(x, (1, 2, 2, 6)), [3], [2], [5]),
        lambda x: op.reshape(op.permute_dims(op.reshape(x, (2, 3, 4)), [1, 0, 2]), (1, 2, 4, 3)),
    ],
    ids=["a part of the channels", "rows that are no multiple of the channels"],
)
def test_a_bias_stays_behind_what_moves_channels(image: Body):
    def body(x: relax.Expr) -> relax.Expr:
        return op.add(op.permute_dims(image(x), [0, 3, 1, 2]), weights(1, 3, 1, 1))

    assert rewritten(body, 1, 24)[-1] == "add"


def test_between_convolutions_no_image_changes_its_layout():
    """The permutations on both sides are those that ChannelsLast needs no more."""

    def body(x: relax.Expr) -> relax.Expr:
        y = nn.relu(op.add(doubled(nn.conv2d(x, weights(3, 3, 1, 1))), weights(1, 5, 1, 1)))
        return nn.conv2d(y, weights(4, 5, 1, 1))

    found = operators(ChannelsLast()(ExpandTransposed()(built(body, 1, 3, 4, 6))))
    inside = found[found.index("nn.conv2d") + 1 : len(found) - 1 - found[::-1].index("nn.conv2d")]
    assert inside == ["reshape", "matmul", "add", "nn.relu", "permute_dims", "reshape"]
