"""Random operators and Dropout of ONNX: their types, shapes, ranges and distributions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_case import check, one_node, run


def test_random_numbers_follow_the_seed():
    model = [one_node("RandomNormal", {}, shape=[1000], seed=seed) for seed in (1.0, 1.0, 2.0)]
    first, second, third = (run(one, {})[0] for one in model)
    assert np.array_equal(first, second)
    assert not np.array_equal(first, third)
    assert abs(first.mean()) < 0.15
    assert abs(first.std() - 1) < 0.1


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_random_numbers_have_the_range_and_type_that_are_asked_for(dtype):
    x = np.zeros((40, 50), dtype)
    found = run(one_node("RandomUniformLike", {"x": x}, dims={"x": ["n", 50]}, low=2.0, high=3.0), {"x": x})[
        0
    ]
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    assert found.min() >= 2
    assert found.max() <= 3
    assert len(np.unique(found.astype("float64"))) > 500
    assert abs(found.astype("float64").mean() - 2.5) < 0.05


def test_multinomial_draws_by_probability():
    x = np.log(np.array([[0.1, 0.2, 0.7], [1, 0, 0]], "float32") + 1e-30)
    found = run(one_node("Multinomial", {"x": x}, opset=10, sample_size=2000), {"x": x})[0]
    assert (found.dtype, found.shape) == (np.dtype("int32"), (2, 2000))
    np.testing.assert_allclose(np.bincount(found[0], minlength=3) / 2000, [0.1, 0.2, 0.7], atol=0.05)
    assert not found[1].any()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("constant", [[], ["training"]])
def test_dropout(training, constant):
    feeds = {
        "x": np.ones((50, 40), "float32"),
        "ratio": np.array(0.25, "float32"),
        "training": np.array(training),
    }
    found, mask = run(one_node("Dropout", feeds, 2, opset=13, constant=constant), feeds)
    assert mask.dtype == bool
    assert abs(mask.mean() - (0.75 if training else 1)) < 0.05
    np.testing.assert_allclose(found, np.where(mask, 1 / 0.75 if training else 1, 0), rtol=1e-6)


def test_dropout_of_old_versions_gives_its_operand():
    x = np.array([1, -2, 3], "float32")
    check(one_node("Dropout", {"x": x}, 1, opset=7, ratio=0.9), {"x": x}, want=[x])
