"""Handwritten loops that must run in their order keep it, whatever their iterators are said to be."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from schedule_checks import TARGET, WIDE, built, floats
from tvm import tirx
from tvm.script import tirx as T

from unity_collage.schedule import schedule

ROWS, COLUMNS = 256, 128


@T.prim_func(private=True, s_tir=True)
def _recurrence(x: T.Buffer((256, 128), "float32"), y: T.Buffer((256, 128), "float32")):
    for i, j in T.grid(256, 128):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] + T.if_then_else(vi == 0, T.float32(0), y[T.max(vi - 1, 0), vj])


@T.prim_func(private=True, s_tir=True)
def _scatter(
    x: T.Buffer((256, 128), "float32"), at: T.Buffer((256,), "int32"), y: T.Buffer((4, 128), "float32")
):
    for i, j in T.grid(4, 128):
        with T.sblock("zero"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.float32(0)
    for i, j in T.grid(256, 128):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[at[vi], vj] = y[at[vi], vj] + x[vi, vj]


@T.prim_func(private=True, s_tir=True)
def _sum(x: T.Buffer((256, 128), "float32"), y: T.Buffer((128,), "float32")):
    for i in range(128):
        with T.sblock("zero"):
            vi = T.axis.spatial(128, i)
            y[vi] = T.float32(0)
    for i, j in T.grid(256, 128):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vj] = y[vj] + x[vi, vj]


@T.prim_func(private=True, s_tir=True)
def _overlapping(x: T.Buffer((256, 128), "float32"), y: T.Buffer((257, 128), "float32")):
    for i, j in T.grid(257, 128):
        with T.sblock("zero"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.float32(0)
    for i, j, k in T.grid(256, 128, 2):
        with T.sblock("y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            y[vi + vk, vj] = y[vi + vk, vj] + x[vi, vj]


def _windows(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((0, 1), (0, 0))) + np.pad(x, ((1, 0), (0, 0)))


AT = np.arange(ROWS, dtype="int32") % 4
CASES = {
    "recurrence": (_recurrence, [], lambda x: np.cumsum(x, 0), "uses elements of y that other iterations"),
    "scatter": (_scatter, [AT], lambda x: x.reshape(64, 4, COLUMNS).sum(0), "computes from values where"),
    "sum": (_sum, [], lambda x: x.sum(0), "several iterations may write one element of y"),
    "overlap": (_overlapping, [], _windows, "several elements of y for one result"),
}


@pytest.mark.parametrize("name", CASES)
def test_loops_that_depend_on_each_other_run_in_their_order(name: str) -> None:
    func, more, expected, reason = CASES[name]
    made = schedule(func, TARGET)
    assert reason in made.attrs["collage.unscheduled"]
    assert "T.parallel" not in made.script()
    x = floats(ROWS, COLUMNS)
    result = tvm.runtime.tensor(np.full_like(expected(x), np.nan))
    built(func)(*map(tvm.runtime.tensor, (x, *more)), result)
    np.testing.assert_allclose(result.numpy(), expected(x), rtol=1e-4, atol=1e-4)


@T.prim_func(private=True, s_tir=True)
def _drawn(a: T.Buffer((100, 100), "float32"), b: T.Buffer((100, 100), "float32")):
    drawn = T.sblock_alloc_buffer((100, 100), "float32")
    for i, j in T.grid(100, 100):
        with T.sblock("drawn"):
            vi, vj = T.axis.remap("SS", [i, j])
            drawn[vi, vj] = T.Cast("float32", T.call_extern("float64", "drand48"))
    for i, j in T.grid(100, 100):
        with T.sblock("a"):
            vi, vj = T.axis.remap("SS", [i, j])
            a[vi, vj] = drawn[vi, vj]
    for i, j in T.grid(100, 100):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = drawn[vi, vj] + T.float32(1)


def test_calls_with_effects_are_made_once_and_in_order() -> None:
    made = schedule(_drawn, TARGET)
    assert "it calls tirx.call_extern, which may have effects" in made.attrs["collage.unscheduled"]
    a, b = (tvm.runtime.tensor(np.zeros((100, 100), "float32")) for _ in range(2))
    built(_drawn)(a, b)
    np.testing.assert_array_equal(b.numpy(), a.numpy() + 1)


@T.prim_func(private=True, s_tir=True)
def _strided(x: T.Buffer((64, 256), "float32"), y: T.Buffer((16384,), "float32")):
    for i, j in T.grid(64, 256):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi * 256 + vj] = x[vi, vj] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def _reversed(x: T.Buffer((64, 256), "float32"), y: T.Buffer((64, 256), "float32")):
    for i, j in T.grid(64, 256):
        with T.sblock("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[63 - vi, vj] = x[vi, vj] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def _split(x: T.Buffer((16384,), "float32"), y: T.Buffer((64, 256), "float32")):
    for i in range(16384):
        with T.sblock("y"):
            vi = T.axis.spatial(16384, i)
            y[vi // 256, vi % 256] = x[vi] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def _pairs(x: T.Buffer((16384,), "float32"), y: T.Buffer((16384, 2), "float32")):
    for i in range(16384):
        with T.sblock("y"):
            vi = T.axis.spatial(16384, i)
            y[vi, 0] = x[vi]
            y[vi, 1] = x[vi] + T.float32(1)


@pytest.mark.parametrize(
    "func", [_strided, _reversed, _split, _pairs], ids=["strided", "reversed", "split", "pairs"]
)
def test_other_loops_run_on_all_threads(func: tirx.PrimFunc) -> None:
    assert "T.parallel" in schedule(func, WIDE).script()
