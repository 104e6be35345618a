"""More functions for backends that make kernels for CUDA: those of 16 bits, for which GPUs have other units.

Some extents are multiples of 8, which these units need, and others are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from tvm import relax
from tvm.script import relax as R

from ...target import CUDA
from . import cases
from .cases import Case, Shape, nn

_HALF = "float16"

case = partial(cases.case, dtype=_HALF, kind=CUDA)
weights = partial(cases.weights, dtype=_HALF)


def _products() -> Iterator[Case]:
    shapes: tuple[tuple[Shape, Shape], ...] = (
        ((1, 64), (64, 10)),
        ((32, 64), (64, 48)),
        ((33, 65), (65, 17)),
        ((3, 4, 8), (3, 8, 16)),
        ((3, 4, 5), (5, 6)),
        ((8,), (8, 16)),
    )
    for left, right in shapes:
        yield case("matmul", R.matmul, left, right)
    yield case("matmul of a transpose", lambda x, y: R.matmul(R.permute_dims(x), y), (16, 8), (16, 24))
    yield case("matmul+bias+relu",
               lambda x: R.nn.relu(R.add(R.matmul(x, weights(16, 24)), weights(24))), (5, 16))  # fmt: skip
    yield case("matmul+residual+gelu",
               lambda x, y, r: R.nn.gelu(R.add(R.matmul(x, y), r)), (8, 16), (16, 8), (8, 8))  # fmt: skip
    yield case("scaled matmul", lambda x, y: R.multiply(R.matmul(x, y), _number(0.125)), (8, 16), (16, 8))


def _convolutions() -> Iterator[Case]:
    def conv2d(x: Any, *shape: int, **attrs: Any) -> Any:
        return R.nn.conv2d(x, weights(*shape), **attrs)

    nhwc: dict[str, Any] = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    yield case("conv2d", lambda x: conv2d(x, 8, 4, 3, 3, padding=1), (3, 4, 7, 7))
    yield case("conv2d NHWC", lambda x: conv2d(x, 16, 3, 3, 8, padding=1, **nhwc), (1, 9, 7, 8))
    yield case("conv2d NHWC, 3 channels", lambda x: conv2d(x, 16, 3, 3, 3, strides=2, **nhwc), (1, 9, 9, 3))
    yield case("conv2d NHWC 1x1", lambda x: conv2d(x, 16, 1, 1, 8, **nhwc), (3, 5, 5, 8))
    yield case("conv2d NHWC dilation", lambda x: conv2d(x, 8, 3, 3, 8, dilation=2, **nhwc), (1, 9, 9, 8))
    yield case("conv2d NHWC depthwise",
               lambda x: conv2d(x, 8, 3, 3, 1, groups=8, padding=1, **nhwc), (3, 7, 7, 8))  # fmt: skip
    yield case("conv2d+bias+relu NHWC",
               lambda x: R.nn.relu(R.add(conv2d(x, 8, 3, 3, 8, **nhwc), weights(8))), (1, 8, 8, 8))  # fmt: skip
    yield case("conv2d+bias+residual+relu NHWC",
               lambda x, r: R.nn.relu(R.add(R.add(conv2d(x, 8, 3, 3, 8, padding=1, **nhwc), weights(8)), r)),
               (3, 6, 6, 8), (3, 6, 6, 8))  # fmt: skip
    yield case("conv1d", lambda x: R.nn.conv1d(x, weights(8, 8, 3), padding=1), (3, 8, 9))
    yield case("conv3d", lambda x: R.nn.conv3d(x, weights(8, 8, 3, 3, 3)), (1, 8, 5, 5, 5))


def _windows() -> Iterator[Case]:
    for name in ("max_pool2d", "avg_pool2d"):
        pool = getattr(nn, name)
        yield case(name, lambda x, pool=pool: pool(x, (3, 3), (2, 2), (1, 1)), (3, 4, 9, 9))
        yield case(f"{name} NHWC",
                   lambda x, pool=pool: pool(x, (2, 2), (2, 2), layout="NHWC"), (1, 8, 6, 8))  # fmt: skip
    yield case("adaptive_avg_pool2d",
               lambda x: R.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"), (3, 7, 7, 8))  # fmt: skip


def _layer_norms() -> Iterator[Case]:
    def norm(x: Any, gamma: Any, beta: Any) -> Any:
        return R.nn.layer_norm(x, gamma, beta, axes=[-1])

    for extent in (16, 7):
        yield case("layer_norm", norm, (3, 5, extent), (extent,), (extent,))


def _attentions() -> Iterator[Case]:
    def scores(query: Any, key: Any) -> Any:
        return R.multiply(R.matmul(query, R.permute_dims(key, [0, 1, 3, 2])), _number(0.25))

    def attention(query: Any, key: Any, value: Any) -> Any:
        return R.matmul(R.nn.softmax(scores(query, key)), value)

    def masked(query: Any, key: Any, value: Any, mask: Any) -> Any:
        return R.matmul(R.nn.softmax(R.add(scores(query, key), mask)), value)

    heads = (2, 3, 9, 16)
    yield case("attention", attention, heads, heads, heads)
    yield case("attention of other lengths", attention, heads, (2, 3, 24, 16), (2, 3, 24, 16))
    yield case("attention with a mask", masked, heads, heads, heads, (2, 1, 1, 9))
    yield case("nn.attention", R.nn.attention, (2, 9, 3, 16), (2, 7, 3, 16), (2, 7, 3, 16))


def _number(value: float) -> Any:
    return relax.const(np.float16(value))


CUDA_CASES: tuple[Case, ...] = (
    *_products(),
    *_convolutions(),
    *_windows(),
    *_layer_norms(),
    *_attentions(),
)
"""Cases of float16 for CUDA alone."""
