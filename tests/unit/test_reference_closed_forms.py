"""Operators that TVM does not legalize to a simple PrimFunc: against formulas written out here."""

import math

import numpy as np
import pytest
from tvm import relax

from unity_collage import reference
from unity_collage.reference.special import erf

R = relax.op
RNG = np.random.default_rng(3)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def compute(make, *arrays):
    params = [relax.Var(f"x{n}", relax.TensorType(a.shape, str(a.dtype))) for n, a in enumerate(arrays)]
    call = relax.BlockBuilder().normalize(make(*params))
    return reference.evaluate(call, arrays)


def close(got, want) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, 2e-6, 2e-6)


def test_erf_is_exact_to_double_precision():
    points = np.concatenate([np.linspace(-7, 7, 2001), np.logspace(-12, 0, 50)])
    want = np.array([math.erf(point) for point in points])
    np.testing.assert_allclose(erf(points), want, rtol=5e-16, atol=0)
    assert erf(np.array([np.inf, -np.inf, -0.0], "float32")).tolist() == [1, -1, 0]
    assert np.isnan(erf(np.array([np.nan]))[0]) and erf(np.float32([1])).dtype == np.float32


def test_sorting_keeps_the_order_of_equals():
    x = np.array([[2, 1, 2, 3, 1]], "float32")
    assert compute(lambda x: R.argsort(x), x).tolist() == [[1, 4, 0, 2, 3]]
    assert compute(lambda x: R.argsort(x, descending=True, dtype="int64"), x).tolist() == [[3, 0, 2, 1, 4]]
    assert compute(lambda x: R.sort(x, -1, True), x).tolist() == [[3, 2, 2, 1, 1]]
    values, indices = compute(lambda x: R.topk(x, 3, dtype="int64"), x)
    assert (values.tolist(), indices.tolist()) == ([[3, 2, 2]], [[3, 0, 2]])
    assert indices.dtype == np.int64
    assert compute(lambda x: R.topk(x, 2, largest=False, ret_type="indices"), x).tolist() == [[1, 4]]


def test_median_is_the_lower_one():
    x = np.array([[4, 1, 3, 2], [8, 5, 6, 7]], "float32")
    value, index = compute(lambda x: R.median(x, 1), x)
    assert (value.tolist(), index.tolist()) == ([2, 6], [3, 2])
    assert compute(lambda x: R.median(x), x) == 4


def test_scans():
    x = real(3, 4)
    close(compute(lambda x: R.cumsum(x, 1), x), np.cumsum(x, 1))
    close(compute(lambda x: R.cumprod(x), x), np.cumprod(x))
    close(compute(lambda x: R.cumsum(x, 0, exclusive=True), x), np.cumsum(x, 0) - x)
    got = compute(lambda x: R.cumsum(x, 0, dtype="int64"), np.full((300,), 100, "int8"))
    assert got.dtype == np.int64 and got[-1] == 30_000


@pytest.mark.parametrize(
    ("how", "want"), [("update", 5), ("add", 8), ("mul", 15), ("min", 3), ("max", 5), ("mean", 4)]
)
def test_scatters(how, want):
    x, row = np.full((2, 2), 3, "float32"), np.array([[1, 1]], "int64")
    got = compute(lambda x, i, u: R.scatter_elements(x, i, u, 0, how), x, row, np.full((1, 2), 5, "float32"))
    assert got.tolist() == [[3, 3], [want, want]]
    if how != "mean":
        got = compute(
            lambda x, i, u: R.scatter_nd(x, i, u, how),
            x,
            np.array([[0, 1]], "int64"),
            np.array([5], "float32"),
        )
        assert got.tolist() == [[3, want], [3, 3]]


def test_writes_into_slices_and_places():
    zero, number = np.zeros((4, 2), "float32"), relax.prim_value
    got = compute(
        lambda x, s: R.slice_scatter(x, s, number(1), number(4), number(2), 0),
        zero,
        np.ones((2, 2), "float32"),
    )
    assert got[:, 0].tolist() == [0, 1, 0, 1]
    rows, columns, ones = np.array([0, 0, 3]), np.array([1, 1, 0]), np.ones(3, "float32")
    call = R.index_put(relax.const(zero), (relax.const(rows), relax.const(columns)), relax.const(ones), True)
    got = reference.evaluate(call, [None, None, None])
    assert (got[0, 1], got[3, 0], got.sum()) == (2, 1, 3)


def test_searches():
    x = np.array([[0, 2], [5, 0]], "float32")
    assert compute(R.nonzero, x).tolist() == [[0, 1], [1, 0]]
    assert compute(lambda x, b: R.bucketize(x, b), x, np.array([0, 2, 4], "float32")).tolist() == [
        [0, 1],
        [3, 0],
    ]
    got = compute(
        lambda x, b: R.bucketize(x, b, out_int32=True, right=True), x, np.array([0, 2, 4], "float32")
    )
    assert got.tolist() == [[1, 2], [3, 1]] and got.dtype == np.int32


def test_creation():
    assert compute(lambda: R.arange(2, 9, 3, "float32")).tolist() == [2, 5, 8]
    assert np.array_equal(compute(lambda: R.eye(3, 4, 1, dtype="int32")), np.eye(3, 4, 1))
    assert compute(lambda: R.zeros((2, 1), "bool")).tolist() == [[False], [False]]
    assert compute(lambda: R.full((2,), relax.const(7, "int64"), "int64")).tolist() == [7, 7]
    close(compute(lambda: R.hamming_window(relax.prim_value(8), False, 0.54, 0.46, "float32")), np.hamming(8))


def test_pixel_shuffle_takes_blocks_of_channels_apart():
    x = real(1, 8, 2, 3)
    got = compute(lambda x: R.nn.pixel_shuffle(x, 2), x)
    assert got.shape == (1, 2, 4, 6)
    for channel, row, column in np.ndindex(2, 4, 6):
        source = channel * 4 + (row % 2) * 2 + column % 2
        assert got[0, channel, row, column] == x[0, source, row // 2, column // 2]


def test_reverse_sequence():
    x = np.arange(6, dtype="float32").reshape(2, 3)
    got = compute(
        lambda x, n: R.reverse_sequence(x, n, seq_axis=1, batch_axis=0), x, np.array([2, 3], "int64")
    )
    assert got.tolist() == [[1, 0, 2], [5, 4, 3]]


def test_fused_multiply_add_and_dropout():
    x, y, z = real(3), real(3), real(3)
    close(compute(R.ewise_fma, x, y, z), x * y + z)
    kept, mask = compute(lambda x: R.nn.dropout(x, 0.5), x)
    assert np.array_equal(kept, x) and mask.tolist() == [1, 1, 1]


def test_group_and_instance_norm():
    x, gamma, beta = real(2, 6, 4, 3), real(6), real(6)
    groups = x.astype("float64").reshape(2, 3, 2, 4, 3)
    centred = groups - groups.mean((2, 3, 4), keepdims=True)
    normal = (centred / np.sqrt(groups.var((2, 3, 4), keepdims=True) + 1e-3)).reshape(x.shape)
    scale, shift = gamma.reshape(6, 1, 1), beta.reshape(6, 1, 1)
    close(
        compute(lambda x, g, b: R.nn.group_norm(x, g, b, 3, 1, [2, 3], 1e-3), x, gamma, beta),
        normal * scale + shift,
    )
    normal = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-3)
    got = compute(lambda x, g, b: R.nn.instance_norm(x, g, b, 1, [2, 3], 1e-3), x, gamma, beta)
    close(got, normal * scale + shift)


@pytest.mark.parametrize("size", [(3, 2), (9, 4)])
def test_adaptive_pool_parts_the_input_evenly(size):
    x = real(1, 2, 7, 5)
    got = compute(lambda x: R.nn.adaptive_avg_pool2d(x, size), x)
    for row, column in np.ndindex(size):
        rows = slice(row * 7 // size[0], math.ceil((row + 1) * 7 / size[0]))
        columns = slice(column * 5 // size[1], math.ceil((column + 1) * 5 / size[1]))
        close(got[..., row, column], x[..., rows, columns].mean((2, 3)))


def test_convolutions_of_other_output_and_packed_layouts():
    x, weight = real(1, 8, 6, 6), real(8, 8, 3, 3)
    plain = compute(lambda x, w: R.nn.conv2d(x, w, padding=1), x, weight)
    turned = compute(lambda x, w: R.nn.conv2d(x, w, padding=1, out_layout="NHWC"), x, weight)
    close(turned, plain.transpose(0, 2, 3, 1))
    packed = x.reshape(1, 2, 4, 6, 6).transpose(0, 1, 3, 4, 2)
    kernel = weight.reshape(2, 4, 2, 4, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    got = compute(
        lambda x, w: R.nn.conv2d(x, w, padding=1, data_layout="NCHW4c", kernel_layout="OIHW4i4o"),
        packed,
        kernel,
    )
    close(got, plain.reshape(1, 2, 4, 6, 6).transpose(0, 1, 3, 4, 2))


def test_dynamic_slices_and_takes_of_one_element():
    x = real(4, 5)
    begin, end, strides = (np.array(bounds, "int64") for bounds in ([3, 1], [0, 5], [-1, 2]))
    close(compute(R.dynamic_strided_slice, x, begin, end, strides), x[3:0:-1, 1:5:2])
    close(compute(lambda x: R.take(x, relax.prim_value(2), axis=1), x), x[:, 2])


def test_shapes_are_tuples():
    x = real(2, 3)
    assert compute(R.shape_of, x) == (2, 3)
    assert compute(lambda: R.shape_to_tensor(relax.ShapeExpr([2, 3]))).tolist() == [2, 3]
    assert compute(R.tensor_to_shape, np.array([4, 5], "int64")) == (4, 5)
    assert compute(R.size, x) == 6


@pytest.mark.parametrize(("dtype", "lowest"), [("int8", -128), ("uint8", 0), ("int16", -32768)])
def test_nan_is_quantised_to_the_lowest_number(dtype: str, lowest: int):
    x, scale, zero = np.array([np.nan, 1, -np.inf], "float32"), np.array(0.5, "float32"), np.array(3, dtype)
    got = compute(lambda x, s, z: R.quantize(x, s, z, out_dtype=dtype), x, scale, zero)
    assert got.tolist() == [lowest, 5, lowest]
