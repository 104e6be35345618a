"""The trial with NaN, which kernels on a GPU have to pass."""

from __future__ import annotations

import numpy as np
import pytest
from relax_calls import function
from tvm import relax

from unity_collage.annotations import LIFTED
from unity_collage.database.rows import FailureKind
from unity_collage.measure.judge import nan_trial, why_nan_is_lost
from unity_collage.testing import graphs


def relu(dtype: str) -> relax.Function:
    return function(relax.op.nn.relu, (4, 8), dtype=dtype).with_attr(LIFTED, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_kernel_that_makes_numbers_of_nan_is_refused(dtype: str) -> None:
    trial = nan_trial(relu(dtype))
    assert trial is not None and trial.expected is not None
    (right,) = trial.expected
    assert 0 < np.isnan(right).sum() < right.size
    assert why_nan_is_lost([right], [right]) is None
    lost = why_nan_is_lost([np.nan_to_num(right)], [right])
    assert lost is not None and lost.kind is FailureKind.WRONG_NUMBERS
    assert lost.reason == "output 0 is a number where the reference is NaN"


def test_nan_in_more_places_is_not_lost() -> None:
    right = np.array([1.0, np.nan], np.float32)
    assert why_nan_is_lost([np.full(2, np.nan, np.float32)], [right]) is None


def test_products_and_integers_have_no_such_trial() -> None:
    assert nan_trial(relu("int32")) is None
    assert nan_trial(graphs.conv_conv().with_attr(LIFTED, 0)) is None
