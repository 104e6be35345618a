"""Reductions, softmax and normalisation: rows of any length, along memory and across it."""

import numpy as np
import pytest
import tvm
from schedule_checks import WIDE, built, check, floats, scheduled
from tvm import relax, te
from tvm.relax import op
from tvm.script import tirx as T

from unity_collage.schedule import schedule


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def normal(x, axes, epsilon=1e-5):
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


@pytest.mark.parametrize("extent", [1, 3, 15, 16, 17, 64, 197, 1000])
def test_sum_and_maximum_of_rows_of_any_length(extent):
    x = floats(9, extent)
    check(lambda a: op.sum(a, axis=-1), lambda a: a.sum(-1), x)
    check(lambda a: op.max(op.nn.relu(a), axis=-1), lambda a: np.maximum(a, 0).max(-1), x)


@pytest.mark.parametrize("axis", [[0], [1], [2], [1, 2], [0, 2], [0, 1, 2]])
def test_mean_over_any_axes(axis):
    check(lambda a: op.mean(a, axis=axis), lambda a: a.mean(tuple(axis)), floats(5, 7, 50))


@pytest.mark.parametrize("shape", [(1, 2048, 7, 7), (2, 3, 5, 9)])
def test_global_average_in_both_layouts(shape):
    check(lambda a: op.mean(a, axis=[2, 3]), lambda a: a.mean((2, 3)), floats(*shape))
    check(lambda a: op.mean(a, axis=[1, 2]), lambda a: a.mean((1, 2)), floats(*shape))


@pytest.mark.parametrize(
    ("shape", "axis"), [((12, 33, 197), -1), ((1, 1000), -1), ((2, 21, 7, 9), 1), ((21, 40), 0)]
)
def test_softmax_along_any_axis(shape, axis):
    check(lambda x: op.nn.softmax(x, axis), lambda x: softmax(x, axis), floats(*shape))


def test_softmax_of_a_scaled_and_masked_matrix():
    mask = np.where(floats(64, 64, seed=1) > 1.5, -np.inf, 0).astype("float32")
    build = lambda x, m: op.nn.softmax(op.add(op.multiply(x, relax.const(0.125)), m))  # noqa: E731
    check(build, lambda x, m: softmax(x * 0.125 + m), floats(64, 64), mask)


def test_log_softmax():
    check(op.nn.log_softmax, lambda x: np.log(softmax(x)), floats(17, 1000))


@pytest.mark.parametrize("extent", [5, 64, 197, 768])
def test_layer_norm_after_an_addition(extent):
    def build(x, y, g, b):
        return op.nn.layer_norm(op.add(x, y), g, b, axes=[-1])

    arrays = [floats(13, extent), floats(13, extent, seed=1), floats(extent), floats(extent, seed=2)]
    check(build, lambda x, y, g, b: normal(x + y, (-1,)) * g + b, *arrays)


def test_layer_norm_over_two_axes():
    arrays = [floats(4, 13, 48), floats(13, 48), floats(13, 48, seed=1)]
    check(
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-2, -1]),
        lambda x, g, b: normal(x, (1, 2)) * g + b,
        *arrays,
    )


def test_group_norm_shares_rows_between_two_sums():
    def build(x, g, b):
        return op.nn.group_norm(x, g, b, num_groups=4, channel_axis=1, axes=[2, 3])

    def expected(x, g, b):
        grouped = normal(x.reshape(2, 4, 6, 5, 7), (2, 3, 4)).reshape(x.shape)
        return grouped * g.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)

    check(build, expected, floats(2, 24, 5, 7), floats(24), floats(24, seed=1))


def test_reductions_that_are_not_sums_keep_their_meaning():
    x = floats(16, 100)
    check(lambda a: op.argmax(a, axis=-1), lambda a: a.argmax(-1), x)
    check(lambda a: op.prod(a, axis=[1]), lambda a: a.prod(1), x[:, :9])
    check(lambda a: op.cumsum(a, axis=-1), lambda a: np.cumsum(a, -1), x)


def test_integer_sums_are_exact():
    x = np.arange(-500, 500, dtype="int64").reshape(10, 100)
    check(lambda a: op.sum(a, axis=-1), lambda a: a.sum(-1), x, rtol=0)


def test_softmax_is_one_parallel_loop_over_rows():
    text = scheduled(op.nn.softmax, (12, 128, 128))
    assert text.count("T.parallel") == 1
    assert "T.vectorized" in text


def test_rows_that_lie_side_by_side_go_in_vectors():
    assert "T.vectorized" in scheduled(lambda x: op.nn.softmax(x, 1), (1, 21, 64, 64))


@pytest.mark.parametrize("also", ["nothing", "the largest", "the largest, reversed"])
def test_threads_share_no_rows_whose_reductions_others_read(also):
    """Else a thread writes the first value of a reduction that another thread has finished."""
    x = te.placeholder((40, 100), name="x")
    one, two = te.reduce_axis((0, 40)), te.reduce_axis((0, 40))
    largest = te.compute((100,), lambda i: te.max(x[one, i], axis=one), name="largest")
    total = te.compute((100,), lambda i: te.sum(te.exp(x[two, i] - largest[i]), axis=two), name="total")
    result = te.compute((40, 100), lambda k, i: te.exp(x[k, i] - largest[i]) / total[i], name="result")
    turned = te.compute((100,), lambda i: largest[99 - i], name="turned")
    more = {"nothing": [], "the largest": [largest], "the largest, reversed": [turned]}[also]
    text = schedule(te.create_prim_func([x, result, *more]), WIDE).script()
    assert "T.vectorized" in text
    overlaps = "T.min(v_i" in text
    assert overlaps == (also == "nothing")


def test_rows_that_are_read_in_reverse_are_computed_before():
    """The first read of the exponentials is of another row, the second one of the same row."""

    def build(x):
        p = op.nn.softmax(x)
        return op.add(op.flip(p, 0), p)

    def reference(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
        return p[::-1] + p

    check(build, reference, floats(300, 100), one_kernel=True)


@T.prim_func(private=True, s_tir=True)
def _two_results(
    x: T.Buffer((64, 256), "float32"), total: T.Buffer((64,), "float32"), largest: T.Buffer((64,), "float32")
):
    for i, k in T.grid(64, 256):
        with T.sblock("both"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                largest[vi] = T.float32(-1000)
                total[vi] = T.float32(0)
            total[vi] = total[vi] + x[vi, vk]
            largest[vi] = T.max(largest[vi], x[vi, vk])


def test_each_of_two_results_starts_from_its_own_value():
    x = -np.abs(floats(64, 256))
    total, largest = (tvm.runtime.tensor(np.full(64, np.nan, "float32")) for _ in range(2))
    built(_two_results)(tvm.runtime.tensor(x), total, largest)
    np.testing.assert_allclose(total.numpy(), x.sum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(largest.numpy(), x.max(1))
