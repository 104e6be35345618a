"""TransposedAsProducts: which transposed convolutions are products, with what follows them, and which stay."""

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
from unity_collage.passes import ChannelsLast, TransposedAsProducts

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
    after = TransposedAsProducts()(before)
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


@pytest.mark.parametrize(
    "body",
    [
        lambda x: doubled(x, strides=(1, 1)),
        lambda x: doubled(x, strides=(3, 3)),
        lambda x: doubled(x, padding=(1, 1)),
        lambda x: doubled(x, output_padding=(1, 1)),
        lambda x: doubled(x, dilation=(2, 2)),
        lambda x: nn.conv2d_transpose(x, weights(3, 1, 2, 2), strides=(2, 2), groups=3),
        lambda x: nn.conv2d_transpose(x, op.abs(weights(3, 5, 2, 2)), strides=(2, 2)),
        lambda x: doubled(op.astype(x, "float16"), "float16", out_dtype="float32"),
    ],
    ids=[
        "overlap",
        "gaps",
        "padding",
        "output padding",
        "dilation",
        "groups",
        "weights not known",
        "wider sums",
    ],
)
def test_the_others_stay(body: Body):
    before = built(body, 1, 3, 4, 6)
    assert "nn.conv2d_transpose" in operators(TransposedAsProducts()(before))
    assert "matmul" not in operators(TransposedAsProducts()(before))


def test_between_convolutions_no_image_changes_its_layout():
    """The permutations on both sides are those that ChannelsLast needs no more."""

    def body(x: relax.Expr) -> relax.Expr:
        y = nn.relu(op.add(doubled(nn.conv2d(x, weights(3, 3, 1, 1))), weights(1, 5, 1, 1)))
        return nn.conv2d(y, weights(4, 5, 1, 1))

    found = operators(ChannelsLast()(TransposedAsProducts()(built(body, 1, 3, 4, 6))))
    inside = found[found.index("nn.conv2d") + 1 : len(found) - 1 - found[::-1].index("nn.conv2d")]
    assert inside == ["reshape", "matmul", "add", "nn.relu", "permute_dims", "reshape"]
