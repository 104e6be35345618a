"""``where`` with numbers is fused with what surrounds it."""

import numpy as np
import pytest
from schedule_checks import check, floats
from tvm import relax
from tvm.relax import op


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_where_with_numbers_is_one_kernel(side):
    number, other = relax.const(2.0, "float32"), relax.const(-np.inf, "float32")

    def build(x):
        return op.exp(
            op.where(
                op.greater(x, relax.const(0.5, "float32")),
                x if side == "right" else number,
                x if side == "left" else other,
            )
        )

    def reference(x):
        return np.exp(
            np.where(
                x > 0.5, x if side == "right" else np.float32(2), x if side == "left" else np.float32(-np.inf)
            )
        )

    check(build, reference, floats(16, 24), one_kernel=True)


def test_where_of_16_bits_and_a_condition_that_broadcasts():
    def build(condition, x):
        y = op.where(op.astype(condition, "bool"), op.astype(x, "float16"), relax.const(3.0, "float16"))
        return op.astype(op.add(y, y), "float32")

    check(build, lambda c, x: 2 * np.where(c != 0, x.astype("float16"), np.float16(3)).astype("float32"),
          (floats(8, 1, 16) > 0).astype("float32"), floats(4, 1), one_kernel=True)  # fmt: skip
