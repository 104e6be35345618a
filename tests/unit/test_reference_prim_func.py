"""PrimFuncs that ``call_tir`` calls, evaluated by numpy."""

import numpy as np
import pytest
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage import reference


@I.ir_module
class Kernels:
    @T.prim_func(private=True, s_tir=True)
    def pad(A: T.Buffer((3, 4), "float32"), B: T.Buffer((5, 5), "float32")):
        for i, j in T.grid(5, 5):
            with T.sblock("pad"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.if_then_else(vi >= 1 and vi < 4 and vj < 4, A[vi - 1, vj], T.float32("-inf"))

    @T.prim_func(private=True, s_tir=True)
    def row_sums(A: T.handle, B: T.handle):
        n, m = T.int64(), T.int64()
        a = T.match_buffer(A, (n, m), "float32")
        b = T.match_buffer(B, (n,), "float32")
        for i, k in T.grid(n, m):
            with T.sblock("sums"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    b[vi] = T.float32(0)
                b[vi] = b[vi] + a[vi, vk]

    @T.prim_func(private=True, s_tir=True)
    def two_steps(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32"), C: T.Buffer((2, 2), "int32")):
        D = T.sblock_alloc_buffer((4,), "int32")
        for i in range(4):
            with T.sblock("sum"):
                vi = T.axis.spatial(4, i)
                D[vi] = T.max(A[vi] + B[vi], 0)
        for i, j in T.grid(2, 2):
            with T.sblock("turned"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = D[vj * 2 + vi] // 2

    @T.prim_func(private=True, s_tir=True)
    def serial(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i]

    @T.prim_func(private=True, s_tir=True)
    def strange(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("strange"):
                vi = T.axis.spatial(4, i)
                B[vi] = T.nextafter(A[vi], T.float32(1))

    @T.prim_func(private=True, s_tir=True)
    def scan(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("scan"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] + T.if_then_else(vi > 0, B[vi - 1], T.float32(0))

    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        cls = Kernels
        with R.dataflow():
            a = R.call_tir(cls.pad, (x,), out_ty=R.Tensor((5, 5), "float32"))
            b = R.call_tir(cls.row_sums, (x,), out_ty=R.Tensor((3,), "float32"))
            R.output(a, b)
        return (a, b)


def call(name: str, shape: tuple, dtype: str, *arrays: np.ndarray):
    params = [relax.Var(f"x{n}", relax.TensorType(a.shape, str(a.dtype))) for n, a in enumerate(arrays)]
    return relax.op.call_tir(Kernels.get_global_var(name), params, out_ty=relax.TensorType(shape, dtype))


def test_guarded_loads_and_reductions():
    x = np.arange(12, dtype="float32").reshape(3, 4)
    padded, sums = reference.run(Kernels["main"], [x], Kernels)
    assert np.array_equal(padded, np.pad(x, [(1, 1), (0, 1)], constant_values=-np.inf))
    assert sums.tolist() == [6, 22, 38]


def test_blocks_run_in_order_and_indices_are_computed():
    left, right = np.array([3, -9, 5, 6], "int32"), np.array([1, 2, 3, 4], "int32")
    got = reference.evaluate(call("two_steps", (2, 2), "int32", left, right), [None, (left, right)], Kernels)
    assert got.tolist() == [[2, 4], [0, 5]] and got.dtype == np.int32


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("serial", "call_tir: a TIR BufferStore has no numpy reference"),
        ("scan", "call_tir: block scan reads what it has written"),
        ("strange", "call_tir: the TIR intrinsic nextafter has no numpy reference"),
    ],
)
def test_a_refusal_names_the_construct(name, reason):
    given = call(name, (4,), "float32", np.zeros(4, "float32"))
    assert reference.why_not(given, Kernels) == reason
    assert reference.why_not(given) == f"call_tir: the module that contains {name} is not given"
    with pytest.raises(reference.Unsupported, match=reason):
        reference.evaluate(given, [None, (np.zeros(4, "float32"),)], Kernels)
