"""Norms that TVM's own legalization does not take."""

import numpy as np
import pytest
from schedule_checks import check, floats
from tvm.relax import op


@pytest.mark.parametrize("axes", [[0, 1, 2], [-1, -3, -2], [1, 2], [-1]])
def test_rms_norm(axes):
    """Also over all axes, where TVM finds no row to index."""
    weight = tuple((2, 3, 5)[axis] for axis in sorted(axis % 3 for axis in axes))

    def reference(x, gamma):
        return x / np.sqrt((x.astype("float64") ** 2).mean(tuple(axes), keepdims=True) + 1e-5) * gamma

    check(lambda x, gamma: op.nn.rms_norm(x, gamma, sorted(axes), 1e-5), reference,
          floats(2, 3, 5), floats(*weight))  # fmt: skip


def standard(x, axes, epsilon=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def doubles(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(
    ("build", "reference"),
    [
        (
            lambda x, scale, shift: op.nn.layer_norm(x, scale, shift, [1], 1e-5),
            lambda x, scale, shift: standard(x, 1) * scale + shift,
        ),
        (
            lambda x, scale, shift: op.nn.instance_norm(x, scale, shift, 1, [2, 3], 1e-5),
            lambda x, scale, shift: standard(x, (2, 3)) * scale + shift,
        ),
        (
            lambda x, scale, shift: op.nn.group_norm(x, scale, shift, 2, 1, [2, 3], 1e-5),
            lambda x, scale, shift: (
                standard(x.reshape(2, 2, 3, 4, 5), (2, 3, 4)).reshape(x.shape) * scale + shift
            ),
        ),
    ],
    ids=["layer", "instance", "group"],
)
def test_norms_in_float64(build, reference):
    """TVM takes float32 and float16 only."""

    def expected(x, scale, shift):
        return reference(x, scale.reshape(-1, 1, 1), shift.reshape(-1, 1, 1))

    check(build, expected, doubles(2, 6, 4, 5), doubles(6, seed=1), doubles(6, seed=2), rtol=1e-12)


@pytest.mark.parametrize(
    ("build", "axes", "size"),
    [
        (lambda x, scale, shift: op.nn.layer_norm(x, scale, shift, [1, 2], 1e-5), (1, 2), (8, 64)),
        (lambda x, scale, shift: op.nn.instance_norm(x, scale, shift, 1, [2], 1e-5), 2, (8,)),
        (lambda x, scale, shift: op.nn.group_norm(x, scale, shift, 1, 1, [2], 1e-5), (1, 2), (8,)),
    ],
    ids=["layer", "instance", "group"],
)
def test_norms_of_numbers_far_from_zero(build, axes, size):
    """Their variance, 1e-4, is less than a rounding of their squares, 1e4."""
    x = (100 + 0.01 * doubles(3, 8, 64)).astype("float32")
    one, zero = np.ones(size, "float32"), np.zeros(size, "float32")
    check(build, lambda x, *_: standard(x.astype("float64"), axes), x, one, zero, rtol=1e-3)
