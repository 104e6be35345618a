"""Booleans are compared and added, which TVM's code generator cannot do by itself."""

import numpy as np
import pytest
from schedule_checks import module, run
from tvm import relax
from tvm.relax import op


@pytest.mark.parametrize("has_constant", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "add",
        "equal",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "maximum",
        "minimum",
        "multiply",
        "not_equal",
    ],
)
def test_arithmetic_of_booleans(name, has_constant):
    true = relax.const(np.array(True))
    mod = module(lambda x, y: getattr(op, name)(x, true if has_constant else y), [(8,), (8,)], ["bool"] * 2)
    x, y = np.array([0, 1] * 4, bool), np.array([0, 0, 1, 1] * 2, bool)
    (found,) = run(mod, x, y)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, getattr(np, name)(x, np.True_ if has_constant else y))
