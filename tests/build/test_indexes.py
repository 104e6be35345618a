"""Negative indexes count from the end in every operator that reads or writes by index, as in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from schedule_checks import check, floats
from tvm import relax
from tvm.relax import op

X, CUBE = floats(3, 4), floats(2, 3, 4)


def indexes(*values: object, dtype: str = "int64") -> np.ndarray:
    return np.array(values, dtype)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("mode", ["fast", "wrap"])
def test_take(mode: str, axis: int, dtype: str):
    ids = indexes([-1, 0, 2], [-3, 1, -2], dtype=dtype)
    check(lambda x, i: op.take(x, i, axis, mode), lambda x, i: np.take(x, i, axis), X, ids)


def test_take_by_unsigned_numbers_and_without_an_axis():
    check(lambda x, i: op.take(x, i, 0), lambda x, i: x[i], floats(200, 2), indexes(199, 0, dtype="uint8"))
    check(lambda x, i: op.take(x, i), lambda x, i: x[i], floats(6), indexes(-6, -1, 3))


def test_the_axis_may_be_longer_than_the_type_of_the_index_can_count():
    check(
        lambda x, i: op.take(x, i, 0), lambda x, i: x[i], floats(300, 2), indexes(-1, -128, 5, dtype="int8")
    )


def test_clip_and_nan_mean_something_else():
    ids = indexes(-1, 9, 1)
    check(lambda x, i: op.take(x, i, 0, "clip"), lambda x, i: np.take(x, i, 0, mode="clip"), X, ids)
    check(
        lambda x, i: op.take(x, i, 0, "nan"),
        lambda x, i: np.where(((i < 0) | (i > 2))[:, None], np.nan, np.take(x, i, 0, mode="clip")),
        X,
        ids,
    )


def test_gather_elements():
    def gathered(x: np.ndarray, i: np.ndarray) -> np.ndarray:
        return np.take_along_axis(x, i, 1)

    check(lambda x, i: op.gather_elements(x, i, 1), gathered, X, indexes([-1, 0], [1, -4], [-2, -2]))


def test_gather_nd():
    pairs = indexes([-1, -1], [0, -2], [2, 3])
    check(lambda x, i: op.gather_nd(x, i), lambda x, i: x[i[:, 0], i[:, 1]], X, pairs)
    check(lambda x, i: op.gather_nd(x, i), lambda x, i: x[i[:, 0]], X, pairs[:, :1].copy())
    batched = indexes([[-1], [0]], [[1], [-3]])
    check(
        lambda x, i: op.gather_nd(x, i, 1),
        lambda x, i: np.stack([x[b][i[b, :, 0]] for b in range(2)]),
        CUBE,
        batched,
    )


def test_index_tensor_broadcasts_its_indexes():
    check(lambda x, i: op.index_tensor(x, [i]), lambda x, i: x[i], X, indexes(-1, 0))
    check(
        lambda x, i, j: op.index_tensor(x, [i, j]),
        lambda x, i, j: x[i, j],
        CUBE,
        indexes([-1], [0]),
        indexes(-3, -1),
    )


@pytest.mark.parametrize("reduction", ["update", "add", "max"])
def test_scatter_nd(reduction: str):
    def scattered(x: np.ndarray, i: np.ndarray, values: np.ndarray) -> np.ndarray:
        result = x.copy()
        for row, value in zip(i, values, strict=True):
            old = result[tuple(row)]
            combined = {"update": value, "add": old + value, "max": np.maximum(old, value)}
            result[tuple(row)] = combined[reduction]
        return result

    def build(x: relax.Expr, i: relax.Expr, values: relax.Expr) -> relax.Expr:
        return op.scatter_nd(x, i, values, reduction)

    check(build, scattered, X, indexes([-1], [0], [-1]), floats(3, 4, seed=1))
    check(build, scattered, X, indexes([-1, -4], [0, -1]), floats(2, seed=1))
    check(build, scattered, floats(5, 130), indexes([-1], [0], [-1]), floats(3, 130, seed=1))


def test_scatter_elements():
    def scattered(x: np.ndarray, i: np.ndarray, values: np.ndarray) -> np.ndarray:
        result = x.copy()
        np.put_along_axis(result, i, values, 1)
        return result

    build: Callable[..., relax.Expr] = lambda x, i, values: op.scatter_elements(x, i, values, 1)  # noqa: E731
    check(build, scattered, X, indexes([-1, 0], [1, -2], [0, 1]), floats(3, 2))


@pytest.mark.parametrize("reduction", ["update", "add", "mul", "min", "max"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scattered_elements_of_wide_rows(axis: int, reduction: str):
    """Rows have more elements than one thread writes, and some places get several updates."""
    random = np.random.default_rng(0)
    x, values = random.normal(size=(2, 70, 67)), random.normal(size=(2, 70, 67))
    i = random.integers(-x.shape[axis], x.shape[axis], x.shape)
    combine = {
        "update": lambda _, new: new,
        "add": np.add,
        "mul": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
    }

    def scattered(x: np.ndarray, i: np.ndarray, values: np.ndarray) -> np.ndarray:
        result = np.moveaxis(x.copy(), axis, 0)
        places, updates = np.moveaxis(i, axis, 0), np.moveaxis(values, axis, 0)
        others = np.ogrid[tuple(slice(size) for size in result.shape[1:])]
        for place, update in zip(places, updates, strict=True):
            result[(place, *others)] = combine[reduction](result[(place, *others)], update)
        return np.moveaxis(result, 0, axis)

    check(
        lambda x, i, values: op.scatter_elements(x, i, values, axis, reduction),
        scattered,
        x.astype("float32"),
        i.astype("int64"),
        values.astype("float32"),
    )


@pytest.mark.parametrize("reduction", ["min", "max"])
def test_an_extremum_of_nan_and_numbers_is_nan(reduction: str):
    x, values = np.array([np.nan, 1, 1], "float32"), np.array([2, np.nan, 3, 0], "float32")
    wanted = np.array([np.nan, np.nan, 3 if reduction == "max" else 0], "float32")
    check(
        lambda x, i, values: op.scatter_elements(x, i, values, 0, reduction),
        lambda *_: wanted,
        x,
        indexes(0, 1, 2, 2),
        values,
    )


@pytest.mark.parametrize("accumulate", [True, False])
def test_index_put(accumulate: bool):
    def put(x: np.ndarray, i: np.ndarray, j: np.ndarray, values: np.ndarray) -> np.ndarray:
        result = x.copy()
        if accumulate:
            np.add.at(result, (i, j), values)
        else:
            result[i, j] = values
        return result

    def build(x: relax.Expr, i: relax.Expr, j: relax.Expr, values: relax.Expr) -> relax.Expr:
        return op.index_put(x, (i, j), values, accumulate)

    check(build, put, X, indexes(-1, 0), indexes(-4, -1), floats(2))
    check(build, put, X, indexes(-1, 0), indexes(-4, -1), floats(1))


def test_sums_at_repeated_indexes_lose_nothing():
    """TVM adds in parallel, and threads overwrite the sums of each other."""
    ids, ones = np.random.default_rng(0).integers(-8, 8, 100_000), np.ones(100_000, "float32")
    check(
        lambda x, i, values: op.index_put(x, (i,), values, accumulate=True),
        lambda x, i, values: np.bincount(i % 8, minlength=8).astype("float32"),
        np.zeros(8, "float32"),
        ids,
        ones,
        rtol=0,
    )


def test_slices_from_the_end():
    check(lambda x: op.strided_slice(x, [1], [-3], [-1], [1]), lambda x: x[:, -3:-1], X)
    check(lambda x: op.strided_slice(x, [1], [-1], [-5], [-2]), lambda x: x[:, ::-2], X)
