"""Convolutions of one input that are summed are one convolution."""

from __future__ import annotations

import numpy as np
import pytest
from prepare_checks import assert_becomes, assert_stays, prepared, values
from relax_calls import function, nn, op
from tvm import relax
from tvm.script import relax as R

from unity_collage.rewrites import ONE_CONVOLUTION

W3 = values(4, 4, 3, 3)
W1 = values(4, 4, 1, 1)[::-1].copy()
S = values(1, 4, 1, 1)
IMAGE = (1, 4, 6, 6)
NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def test_the_branches_of_a_training_network_are_one_convolution():
    wide = W3.copy()
    wide[:, :, 1, 1] += W1[:, :, 0, 0]
    wide[np.arange(4), np.arange(4), 1, 1] += S.reshape(-1)

    @R.function
    def before(x: R.Tensor((1, 4, 6, 6), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(W3), padding=1)
            b = R.add(a, R.const(S))
            c = R.nn.conv2d(x, R.const(W1))
            d = R.add(c, R.const(S * 2))
            e = R.add(b, d)
            f = R.multiply(x, R.const(S))
            g = R.add(f, R.const(S * 4))
            y = R.add(e, g)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((1, 4, 6, 6), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(wide), padding=1)
            y = R.add(a, R.const(S * 7))
            R.output(y)
        return y

    assert_becomes(before, after, ONE_CONVOLUTION)


def test_a_shortcut_around_one_convolution_is_in_its_weights():
    wide = values(4, 1, 3, 3)
    wide[:, 0, 1, 1] += 1

    @R.function
    def before(x: R.Tensor((1, 4, 6, 6), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(values(4, 1, 3, 3)), padding=1, groups=4)
            y = R.add(x, a)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((1, 4, 6, 6), "float32")):
        with R.dataflow():
            y = R.nn.conv2d(x, R.const(wide), padding=1, groups=4)
            R.output(y)
        return y

    assert_becomes(before, after, ONE_CONVOLUTION)


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (lambda x: op.add(conv(x, 4, 1), conv(x, 4, 5, padding=2)), IMAGE),
        (lambda x: op.add(conv(x, 4, 3, padding=1, strides=2), conv(x, 4, 1, strides=2)), IMAGE),
        (lambda x: op.add(conv(x, 4, 3, padding=2, dilation=2), conv(x, 4, 1)), IMAGE),
        (lambda x: op.add(conv(x, 4, 3, padding=2, dilation=2), conv(x, 4, 5, padding=4, dilation=2)), IMAGE),
        (lambda x: op.add(conv(x, 4, 3, padding=(0, 1, 2, 1)), conv(x, 4, (2, 3), padding=(0, 1, 1, 1))), IMAGE),
        (lambda x: op.add(conv(x, 6, 3, padding=1, groups=2), conv(x, 6, 1, groups=2)), IMAGE),
        (lambda x: op.add(conv(x, 4, 3, padding=1, groups=2), x), IMAGE),
        (lambda x: op.add(op.add(x, relax.const(S)), conv(x, 4, 3, padding=1)), IMAGE),
        (lambda x: op.add(nn.conv2d(x, relax.const(values(3, 3, 4, 4)), padding=1, **NHWC), x), (1, 6, 6, 4)),
        (lambda x: op.add(nn.conv1d(x, relax.const(values(4, 4, 3)), padding=1), x), (1, 4, 6)),
    ],
)  # fmt: skip
def test_windows_that_hold_others_take_them_in(body, shape):
    before = function(body, shape)
    after = prepared(before, ONE_CONVOLUTION)
    assert after.script().count("conv") == 1
    assert_becomes(before, after, ONE_CONVOLUTION)


@pytest.mark.parametrize(
    "body",
    [
        lambda x, z: op.add(conv(x, 4, 3, padding=1), conv(z, 4, 1)),
        lambda x, z: op.add(conv(x, 4, 3, padding=1), z),
        lambda x, z: op.add(conv(x, 4, 3, padding=1), conv(x, 4, 3, padding=2, dilation=2)),
        lambda x, z: op.add(conv(x, 4, (1, 3), padding=(0, 1)), conv(x, 4, (3, 1), padding=(1, 0))),
        lambda x, z: op.add(conv(x, 4, 3, padding=1), conv(x, 4, 1, groups=4)),
        lambda x, z: op.add(conv(x, 4, 3, padding=(2, 0, 0, 2)), conv(x, 4, 3, padding=(0, 2, 2, 0))),
        lambda x, z: op.add(conv(x, 4, 3, padding=1), conv(x, 1, 1)),
        lambda x, z: op.add(op.add(conv(x, 4, 3, padding=1), relax.const(values(*IMAGE))), conv(x, 4, 1)),
        lambda x, z: op.add(conv(x, 4, 3, padding=1), op.multiply(x, relax.const(values(*IMAGE)))),
        lambda x, z: op.add(conv(x, 4, 3, padding=1), op.multiply(x, relax.const(S * np.inf))),
        lambda x, z: op.add(x, x),
    ],
)  # fmt: skip
def test_sums_that_are_no_one_convolution_stay(body):
    assert_stays(function(body, IMAGE, (1, 4, 6, 6)), ONE_CONVOLUTION)


def test_a_convolution_that_others_read_too_stays():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(IMAGE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            shared = builder.emit(conv(x, 4, 3, padding=1))
            summed = builder.emit(op.add(shared, builder.emit(conv(x, 4, 1))))
            result = builder.emit_output(op.add(summed, builder.emit(nn.relu(shared))))
        builder.emit_func_output(result)
    assert_stays(builder.get()["main"], ONE_CONVOLUTION)


def conv(x: relax.Expr, channels: int, size: int | tuple[int, int], groups: int = 1, **options) -> relax.Expr:
    window = (size, size) if isinstance(size, int) else size
    return nn.conv2d(x, relax.const(values(channels, 4 // groups, *window)), groups=groups, **options)
