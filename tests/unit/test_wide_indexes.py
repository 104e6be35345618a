"""64-bit indexes: handwritten PrimFuncs with 32-bit ones compute the same, and what cannot be changed stays."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import tirx
from tvm.script import ir as I
from tvm.script import tirx as T

from unity_collage.legalization.wide_indexes import with_wide_indexes
from unity_collage.schedule.stage import nodes


@I.ir_module
class Kernels:
    @T.prim_func(private=True, s_tir=True)
    def mixed(
        x: T.Buffer((8, 16), "float32"),
        at: T.Buffer((8,), "int32"),
        y: T.Buffer((8, 4), "float32"),
        z: T.Buffer((8, 4), "int32"),
    ):
        t = T.sblock_alloc_buffer((8, 4), "float32")
        for i, j, k in T.grid(8, 4, 4):
            with T.sblock("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    t[vi, vj] = T.float32(0)
                t[vi, vj] = t[vi, vj] + x[at[vi], vj * 4 + vk]
        for i, j in T.grid(8, 4):
            with T.sblock("float"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.if_then_else(
                    vi % 2 == 0 and vj < 3, t[vi, vj], T.Cast("float32", vj) + t[vi, 0]
                )
        for i, j in T.grid(8, 4):
            with T.sblock("integer"):
                vi, vj = T.axis.remap("SS", [i, j])
                z[vi, vj] = T.max(vi * 10 + vj, 15) + T.shift_left(at[vi], vj)

    @T.prim_func(private=True, s_tir=True)
    def called(x: T.Buffer((8,), "int32"), y: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.sblock("called"):
                vi = T.axis.remap("S", [i])
                y[vi] = T.popcount(vi) + x[vi]

    @T.prim_func(private=True, s_tir=True)
    def wide(x: T.Buffer((T.int64(8),), "float32"), y: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("wide"):
                vi = T.axis.remap("S", [i])
                y[vi] = x[vi]


def outputs(prim: tirx.PrimFunc) -> list[np.ndarray]:
    built = tvm.compile(prim.with_attr("global_symbol", "main"), tvm.target.Target("llvm"))
    x = np.arange(128, dtype="float32").reshape(8, 16)
    arrays = [
        x,
        np.array([3, 1, 0, 7, 6, 2, 2, 1], "int32"),
        np.zeros((8, 4), "float32"),
        np.zeros((8, 4), "int32"),
    ]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    built["main"](*tensors)
    return [tensor.numpy() for tensor in tensors[2:]]


def test_all_sizes_and_loops_become_wide_and_the_numbers_stay() -> None:
    changed = with_wide_indexes(Kernels["mixed"])
    assert {str(size.ty.dtype) for buffer in changed.params for size in buffer.shape} == {"int64"}
    assert [str(buffer.dtype) for buffer in changed.params] == ["float32", "int32", "float32", "int32"]
    assert {str(loop.loop_var.ty.dtype) for loop in nodes(changed.body, tirx.For)} == {"int64"}
    for got, right in zip(outputs(changed), outputs(Kernels["mixed"]), strict=True):
        np.testing.assert_array_equal(got, right)


def test_what_is_wide_or_cannot_be_widened_stays() -> None:
    for name in ("wide", "called"):
        assert with_wide_indexes(Kernels[name]).same_as(Kernels[name])
