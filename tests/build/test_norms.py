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
