"""Sorts of all element types, as programs have them: NaN is larger than all numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from schedule_checks import TARGET
from tvm import relax
from tvm.relax import op

from unity_collage.lowering.build import build

NAN, INF = np.nan, np.inf
_INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint32", "uint64", "bool")
DTYPES = [np.dtype(name) for name in ("float32", "float64", "float16", ml_dtypes.bfloat16, *_INTEGERS)]


def values(make, x: np.ndarray) -> np.ndarray:
    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType(x.shape, str(x.dtype)))
    with builder.function("main", [given]):
        builder.emit_func_output(builder.emit(make(given)))
    program = relax.VirtualMachine(build(builder.finalize(), TARGET), tvm.cpu())["main"]
    return program(tvm.runtime.tensor(x)).numpy().astype("float64")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("axis", [0, -1])
def test_equal_elements_keep_their_order(axis: int, dtype: np.dtype) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (6, 40)).astype("float32")
    if dtype.kind in "fV":
        x[2, 3::5], x[3], x[4, ::2], x[4, 1::2], x[5, :9] = NAN, -INF, 0.0, -0.0, INF
    x = (np.abs(x) if dtype.kind == "u" else x).astype(dtype)
    if dtype == np.uint64:
        x[0, :5] += 2**63
    wide = x.astype("float64") if dtype.kind in "fV" else x
    order = np.argsort(wide, axis=axis, kind="stable")
    right = np.take_along_axis(wide, order, axis).astype("float64")
    np.testing.assert_array_equal(values(lambda x: op.argsort(x, axis, dtype="int64"), x), order)
    np.testing.assert_array_equal(values(lambda x: op.sort(x, axis), x), right)
    smallest = values(lambda x: op.topk(x, 3, axis, ret_type="values", largest=False), x)
    np.testing.assert_array_equal(smallest, right.take(range(3), axis))
    backwards = np.flip(np.argsort(np.flip(wide, axis), axis=axis, kind="stable"), axis)
    places = values(lambda x: op.topk(x, 3, axis, ret_type="indices", dtype="int64"), x)
    np.testing.assert_array_equal(places, x.shape[axis] - 1 - backwards.take(range(3), axis))
