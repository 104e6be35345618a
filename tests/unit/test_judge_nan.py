"""The trial with NaN, which kernels on a GPU have to pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_calls import function
from tvm import relax

from unity_collage.annotations import LIFTED
from unity_collage.database.rows import FailureKind
from unity_collage.measure.judge import Trial, nan_trial, why_nan_is_lost, why_not_with_nan
from unity_collage.testing import graphs


def relu(dtype: str) -> relax.Function:
    return function(relax.op.nn.relu, (4, 8), dtype=dtype).with_attr(LIFTED, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_kernel_that_makes_numbers_of_nan_is_refused(dtype: str) -> None:
    trial = nan_trial(relu(dtype))
    assert trial is not None and trial.expected is not None
    (right,) = trial.expected
    assert 0 < np.isnan(right).sum() < right.size
    assert why_nan_is_lost([right], [right]) is None
    lost = why_nan_is_lost([np.where(np.isnan(right), np.zeros_like(right), right)], [right])
    assert lost is not None and lost.kind is FailureKind.WRONG_NUMBERS
    assert lost.reason == "output 0 is a number where the reference is NaN"


def test_nan_in_more_places_is_not_lost() -> None:
    right = np.array([1.0, np.nan], np.float32)
    assert why_nan_is_lost([np.full(2, np.nan, np.float32)], [right]) is None


def test_products_and_integers_have_no_such_trial() -> None:
    assert nan_trial(relu("int32")) is None
    assert nan_trial(graphs.conv_conv().with_attr(LIFTED, 0)) is None


def without_nan(x: relax.Expr) -> relax.Expr:
    builder: Any = relax.BlockBuilder.current()
    return relax.op.where(builder.emit(relax.op.isnan(x)), relax.const(0.0, "float32"), x)


def trial_for(body: Callable[..., relax.Expr], *shapes: tuple[int, ...]) -> tuple[relax.Function, Trial]:
    func = function(body, *shapes).with_attr(LIFTED, 0)
    trial = nan_trial(func)
    assert trial is not None and trial.expected is not None
    return func, trial


def test_a_function_that_asks_for_nan_has_to_find_it() -> None:
    """Its results have no NaN, so none is lost where a kernel takes no number for NaN."""
    func, trial = trial_for(without_nan, (4, 8))
    (right,) = trial.expected or ()
    assert not np.isnan(right).any()
    assert why_not_with_nan(func, trial, [right]) is None
    blind = why_not_with_nan(func, trial, [trial.inputs[0]])
    assert blind is not None and "NaN where the reference is finite" in blind.reason
    func, trial = trial_for(relax.op.isnan, (4, 8))
    (right,) = trial.expected or ()
    assert right.any() and why_not_with_nan(func, trial, [right]) is None
    assert why_not_with_nan(func, trial, [np.zeros_like(right)]) is not None


@pytest.mark.parametrize("ask", [relax.op.isinf, relax.op.isfinite])
def test_a_function_that_asks_for_infinity_gets_some(ask: Callable[..., relax.Expr]) -> None:
    func, trial = trial_for(ask, (4, 8))
    assert np.isposinf(trial.inputs[0]).any() and np.isneginf(trial.inputs[0]).any()
    (right,) = trial.expected or ()
    assert right.any() and not right.all()
    assert why_not_with_nan(func, trial, [np.zeros_like(right)]) is not None


def test_all_inputs_of_a_function_that_asks_have_nan() -> None:
    _, trial = trial_for(
        lambda x, y: relax.op.logical_or(relax.op.isnan(x), relax.op.isnan(y)), (4, 8), (4, 8)
    )
    assert all(np.isnan(array).any() for array in trial.inputs)


def test_a_comparison_with_nan_has_one_truth_value() -> None:
    func, trial = trial_for(relax.op.not_equal, (4, 8), (4, 8))
    (right,) = trial.expected or ()
    assert why_not_with_nan(func, trial, [right]) is None
    wrong = why_not_with_nan(func, trial, [np.zeros_like(right)])
    assert wrong is not None and wrong.reason == "output 0 has another truth value for NaN"
