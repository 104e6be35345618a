"""Reads of tables stay within their bounds."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from prepare_checks import assert_stays, prepared
from tvm import relax

from unity_collage import reference
from unity_collage.rewrites.indexing import BOUNDED_TAKE


def lookup(mode: str, axis: int | None = 0) -> relax.Function:
    shape = (5, 3) if axis is not None else (15,)
    table = relax.Var("table", relax.TensorType(shape, "float32"))
    ids = relax.Var("ids", relax.TensorType((4,), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [table, ids]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.take(table, ids, axis, mode))
        builder.emit_func_output(result)
    return builder.get()["main"]


@pytest.mark.parametrize("axis", [0, 1, None])
def test_a_fast_read_becomes_a_clipped_one(axis: int | None) -> None:
    after = prepared(lookup("fast", axis), BOUNDED_TAKE)
    tvm.ir.assert_structural_equal(after, prepared(lookup("clip", axis)))
    table = np.arange(15, dtype="float32").reshape((5, 3) if axis is not None else (15,))
    ids = np.array([0, 2, 1, 2])
    got = reference.run(after["main"], [table, ids])[0]
    np.testing.assert_array_equal(got, np.take(table, ids, axis))


@pytest.mark.parametrize("mode", ["clip", "wrap", "nan"])
def test_other_modes_say_what_happens_and_stay(mode: str) -> None:
    assert_stays(lookup(mode), BOUNDED_TAKE)
