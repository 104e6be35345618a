"""Sorts of all element types, as programs have them: NaN is larger than all numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from schedule_checks import TARGET
from tvm import relax, tirx
from tvm.relax import op

from unity_collage.lowering.build import build
from unity_collage.lowering.sorts_and_scans import dispatched

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


@pytest.mark.parametrize("rows", [tirx.Var("n", "int64"), 0], ids=["free", "static"])
def test_a_running_sum_of_no_rows_writes_nothing(rows) -> None:
    """TVM's kernel writes the first row also where there is none."""
    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType((rows, 16), "float32"))
    with builder.function("main", [given]):
        builder.emit_func_output(builder.emit(op.cumsum(given, axis=0)))
    with TARGET:
        found = dispatched(builder.finalize())["cumsum"].with_attr("global_symbol", "cumsum")
    kernel = tvm.compile(found, TARGET)["cumsum"]
    behind = tvm.runtime.tensor(np.full((1, 16), 7, "float32"))
    given_memory = tvm.runtime.tensor(np.ones((1, 16), "float32"))
    kernel(*(memory._create_view((0, 16)) for memory in (given_memory, behind)))
    assert (behind.numpy() == 7).all()


def test_a_running_sum_of_a_sum_of_sizes() -> None:
    n = tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    given = relax.Var("x", relax.TensorType((n, 3), "float32"))
    with builder.function("main", [given]):
        more = builder.emit(op.concat([relax.const(np.ones((1, 3), "float32")), given], axis=0))
        builder.emit_func_output(builder.emit(op.cumsum(more, axis=0)))
    with TARGET:
        mod = dispatched(builder.finalize())
    program = relax.VirtualMachine(build(mod, TARGET), tvm.cpu())["main"]
    for rows in (0, 1, 5):
        x = np.ones((rows, 3), "float32")
        found = program(tvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(found, np.cumsum(np.ones((rows + 1, 3)), 0))
