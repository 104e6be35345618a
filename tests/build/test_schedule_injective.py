"""Element-wise kernels, copies and gathers compute what numpy does, whatever the extents."""

import numpy as np
import pytest
from schedule_checks import check, floats
from tvm import relax
from tvm.relax import op

relu = op.nn.relu


@pytest.mark.parametrize("shape", [(1, 56, 56, 64), (1, 7, 7, 3), (3, 197), (1000,), (1, 1), ()])
def test_add_and_relu_of_any_size(shape):
    x, y = floats(*shape), floats(*shape, seed=1)
    check(lambda a, b: relu(op.add(a, b)), lambda a, b: np.maximum(a + b, 0), x, y)


@pytest.mark.parametrize(
    ("data", "bias"),
    [((1, 14, 14, 64), (64,)), ((1, 48, 7, 7), (1, 48, 1, 1)), ((197, 5), (197, 1)), ((9, 3), (1,))],
)
def test_broadcast_of_a_bias(data, bias):
    check(lambda x, b: op.multiply(op.add(x, b), b), lambda x, b: (x + b) * b, floats(*data), floats(*bias))


@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0)])
@pytest.mark.parametrize("shape", [(1, 128, 12, 64), (2, 7, 5, 3), (1, 33, 17, 20)])
def test_transposes(shape, axes):
    check(lambda x: op.permute_dims(x, axes), lambda x: np.transpose(x, axes), floats(*shape))


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_concat_of_unequal_parts(axis):
    shapes = [[2, 7, 7, 16] for _ in range(3)]
    for shape, extent in zip(shapes, (16, 33, 3), strict=True):
        shape[axis] = extent
    parts = [floats(*shape, seed=i) for i, shape in enumerate(shapes)]
    check(lambda *xs: relu(op.concat(xs, axis)), lambda *xs: np.maximum(np.concatenate(xs, axis), 0), *parts)


def test_split_has_several_outputs():
    check(lambda x: op.split(x, 3, axis=-1), lambda x: tuple(np.split(x, 3, axis=-1)), floats(1, 13, 63))


def test_pad_on_all_sides():
    widths = [0, 0, 1, 2, 3, 1, 1, 0]
    pairs = [(0, 0), (1, 2), (3, 1), (1, 0)]
    check(lambda x: op.nn.pad(x, widths), lambda x: np.pad(x, pairs), floats(1, 9, 14, 20))


def test_take_reads_rows_by_index():
    indices = np.array([[3, 99, 0, 7, 7]], "int64")
    check(lambda w, i: op.take(w, i, axis=0), lambda w, i: w[i], floats(100, 197), indices)


def test_take_along_the_last_axis():
    indices = np.array([3, 9, 0, 7, 7], "int32")
    check(lambda w, i: op.take(w, i, axis=1), lambda w, i: w[:, i], floats(64, 10), indices)


def test_strided_slice_and_flip():
    check(lambda x: op.strided_slice(x, [1], [3], [100], [3]), lambda x: x[:, 3:100:3], floats(5, 110))
    check(lambda x: op.flip(x, 1), lambda x: x[:, ::-1], floats(5, 110))


def test_where_compares_lane_by_lane():
    check(lambda x, y: op.where(op.less(x, y), x, y), np.minimum, floats(61, 61), floats(61, 61, seed=1))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float64"])
def test_other_types(dtype):
    x = (floats(33, 50) * 5).astype(dtype)
    check(lambda a: op.add(op.multiply(a, a), a), lambda a: a * a + a, x)


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64"])
def test_transposes_of_other_types(dtype):
    x = (floats(96, 130) * 5).astype(dtype)
    check(lambda a: op.permute_dims(a, [1, 0]), np.transpose, x)


def test_no_elements_at_all():
    check(relu, lambda x: x, floats(0, 4))
    check(lambda x: op.sum(x, axis=[0]), lambda x: x.sum(0), floats(0, 4))
    check(lambda x, y: op.concat([x, y], axis=0), lambda x, y: y, floats(0, 4), floats(3, 4))


def test_casts_and_booleans():
    x = np.arange(770, dtype="int64").reshape(7, 110)
    check(lambda a: op.astype(a, "float32"), lambda a: a.astype("float32"), x)
    check(op.less, np.less, floats(7, 110), floats(7, 110, seed=1))


def test_value_that_is_its_own_index():
    check(
        lambda x: op.add(x, relax.op.arange(0, 50, 1, "float32")), lambda x: x + np.arange(50), floats(20, 50)
    )


def test_channel_shuffle_is_one_copy():
    def shuffle(x):
        return op.reshape(op.permute_dims(op.reshape(x, (1, 3, 8, 7, 7)), [0, 2, 1, 3, 4]), (1, 24, 7, 7))

    def expected(x):
        return x.reshape(1, 3, 8, 7, 7).transpose(0, 2, 1, 3, 4).reshape(1, 24, 7, 7)

    check(shuffle, expected, floats(1, 24, 7, 7), one_kernel=True)


def test_a_chain_of_stages_that_read_twice_does_not_grow_to_a_power_of_two():
    def chain(x):
        for _ in range(20):
            x = op.nn.leakyrelu(x, 0.9)
        return x

    check(chain, lambda x: np.where(x > 0, x, x * np.float32(0.9) ** 20), floats(3, 40), rtol=1e-5)
