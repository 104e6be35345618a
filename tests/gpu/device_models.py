"""Small networks that tests compile for a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.script import relax as R

from unity_collage.testing.conformance.cases import bound, function


def weights(*shape: int, scale: float = 0.2) -> Any:
    numbers = np.random.default_rng(shape).standard_normal(shape) * scale
    return relax.const(numbers.astype("float32"))


def conv_net(image: Any) -> Any:
    """Convolutions with a bias, a residual and ReLU, a pooling, a mean, and a classifier."""

    def conv(x: Any, channels: int, of: int, **attrs: Any) -> Any:
        return bound(R.add(R.nn.conv2d(x, weights(channels, of, 3, 3), **attrs), weights(1, channels, 1, 1)))

    top = bound(R.nn.relu(conv(image, 32, 3, strides=2, padding=1)))
    inner = bound(R.nn.relu(conv(top, 32, 32, padding=1)))
    joined = bound(R.nn.relu(R.add(conv(inner, 32, 32, padding=1), top)))
    pooled = bound(R.nn.max_pool2d(joined, (2, 2), (2, 2)))
    return R.add(R.matmul(R.mean(pooled, axis=[2, 3]), weights(32, 10)), weights(10))


CONV_NET = function(conv_net, [(2, 3, 64, 64)])
IMAGE = np.random.default_rng(0).standard_normal((2, 3, 64, 64), dtype="float32")


def mobile_net(image: Any) -> Any:
    """What TVM alone computes: a depthwise convolution, means of windows, and a concatenation, all with a bias."""

    def depthwise(x: Any, channels: int) -> Any:
        return bound(R.nn.conv2d(x, weights(channels, 1, 5, 5), padding=2, groups=channels))

    inner = bound(R.clip(R.add(depthwise(image, 16), weights(1, 16, 1, 1)), 0, 1))
    mean = bound(R.nn.avg_pool2d(image, (3, 3), (1, 1), (1, 1, 1, 1), count_include_pad=False))
    return R.add(R.concat([inner, mean, image], 1), weights(1, 48, 1, 1))


MOBILE_NET = function(mobile_net, [(4, 16, 56, 56)])
