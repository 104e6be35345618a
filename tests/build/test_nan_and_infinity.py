"""NaN reaches the result of maxima, minima, bounds and signs, and -infinity is the smallest number."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from schedule_checks import TARGET, module, run
from tvm.relax import op

NAN, INF = np.nan, np.inf
A = np.array([NAN, 1, -2, INF, -INF, 0, 3e4, -0.0] * 9, "float32")
B = np.array([1, NAN, 5, 1, 1, NAN, 3e4, 0] * 9, "float32")
DTYPES = [np.dtype("float32"), np.dtype("float64"), np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)]


def values(build, *arrays: np.ndarray) -> np.ndarray:
    mod = module(build, [array.shape for array in arrays], [str(array.dtype) for array in arrays])
    return run(mod, *arrays, target=TARGET)[0].astype("float64")


def right(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype("float64") for array in arrays]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("build", "exact"),
    [
        (op.nn.relu, lambda a: np.maximum(a, 0)),
        (lambda x: op.clip(x, 0, 6), lambda a: np.clip(a, 0, 6)),
        (op.sign, np.sign),
    ],
    ids=["relu", "clip", "sign"],
)
def test_functions_of_one_tensor(build, exact, dtype: np.dtype):
    a = A.astype(dtype)
    np.testing.assert_array_equal(values(build, a), exact(*right(a)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("build", "exact"), [(op.maximum, np.maximum), (op.minimum, np.minimum)])
def test_functions_of_two_tensors(build, exact, dtype: np.dtype):
    a, b = A.astype(dtype), B.astype(dtype)
    np.testing.assert_array_equal(values(build, a, b), exact(*right(a, b)))


def rows(dtype: str) -> np.ndarray:
    """NaN first, last and everywhere, and rows of nothing but infinity."""
    found = np.random.default_rng(0).standard_normal((8, 70)).astype("float32")
    found[0, 5], found[1, 69], found[2], found[3, 0], found[4], found[5] = NAN, NAN, -INF, NAN, NAN, INF
    return found.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("build", "exact"), [(op.max, np.max), (op.min, np.min)])
def test_reductions(build, exact, axis: int, dtype: str):
    x = rows(dtype)
    np.testing.assert_array_equal(values(lambda x: build(x, axis), x), exact(*right(x), axis=axis))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize(("build", "exact"), [(op.argmax, np.argmax), (op.argmin, np.argmin)])
def test_places(build, exact, axis: int | None, dtype: str):
    for x in (rows(dtype), rows(dtype)[4:6], rows(dtype)[2:3]):
        found = values(lambda x: build(x, axis, keepdims=True), x)
        np.testing.assert_array_equal(found, exact(x, axis=axis, keepdims=True))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("pad", [0, 1])
def test_max_pooling(pad: int, layout: str):
    image = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype("float32")
    image[0, 5, 2, 3], image[0, 3, 4:] = NAN, -INF
    edges = np.pad(image, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-INF)
    windows = np.lib.stride_tricks.sliding_window_view(edges, (2, 2), (2, 3))[:, :, ::2, ::2]
    exact = windows.max((4, 5))
    if layout == "NHWC":
        image, exact = np.ascontiguousarray(image.transpose(0, 2, 3, 1)), exact.transpose(0, 2, 3, 1)
    got = values(lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2), (pad, pad), layout=layout), image)
    np.testing.assert_array_equal(got, exact)


def test_softmax_of_masked_rows():
    """Its maximum is not tested for NaN, which reaches the result all the same."""
    x = rows("float32")
    with np.errstate(invalid="ignore"):
        powers = np.exp(x.astype("float64") - x.max(1, keepdims=True))
        exact = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(values(lambda x: op.nn.softmax(x, 1), x), exact, rtol=1e-5, atol=1e-7)


def test_places_that_are_bounded_and_read_several_times():
    """TVM does not take an expression twice that has a Let inside: the corners of a grid are such expressions."""
    image = np.random.default_rng(0).standard_normal((1, 2, 5, 6)).astype("float32")
    grid = np.zeros((1, 2, 1, 1), "float32")
    got = values(
        lambda x, g: op.image.grid_sample(x, g, padding_mode="border", align_corners=True), image, grid
    )
    np.testing.assert_allclose(got[0, :, 0, 0], image[0, :, 2, 2:4].mean(1), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32"])
def test_casts_to_small_integers_wrap_around(dtype: str):
    x = np.array([-5, -1, 1.5, 128.2, 255.5, 300, 70000, -40000.5, NAN, INF, -INF] * 9, "float32")
    wide = np.where(np.isfinite(x), x, 0).astype("int64")
    np.testing.assert_array_equal(values(lambda x: op.astype(x, dtype), x), wide.astype(dtype))
