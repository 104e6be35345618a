"""Programs that change memory in place compute what they say, each time that they are called."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tir_modules import floats
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import unity_collage as uc

SHAPE = (1, 64)


@I.ir_module
class _Grown:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(1), T.int64(64)), "float32")):
        for i, j in T.grid(T.int64(1), T.int64(64)):
            with T.sblock("grown"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = x[vi, vj] * T.float32(10)

    @R.function
    def main(x: R.Tensor((1, 64), "float32")) -> R.Tensor((1, 64), "float32"):
        cls = _Grown
        with R.dataflow():
            a = R.exp(x)
            b = R.multiply(a, R.const(2.0))
            c = R.call_tir_inplace(cls.grown, (a,), inplace_indices=[0], out_ty=R.Tensor((1, 64), "float32"))
            d = R.multiply(b, R.const(3.0))
            e = R.add(c, d)
            R.output(e)
        return e


@I.ir_module
class _Cached:
    @T.prim_func(private=True, s_tir=True)
    def added(
        cache: T.Buffer((T.int64(1), T.int64(64)), "float32"),
        x: T.Buffer((T.int64(1), T.int64(64)), "float32"),
    ):
        for i, j in T.grid(T.int64(1), T.int64(64)):
            with T.sblock("added"):
                vi, vj = T.axis.remap("SS", [i, j])
                cache[vi, vj] = cache[vi, vj] + x[vi, vj]

    @R.function
    def main(x: R.Tensor((1, 64), "float32")) -> R.Tensor((1, 64), "float32"):
        cls = _Cached
        with R.dataflow():
            k = R.zeros(R.shape([1, 64]), dtype="float32")
            v = R.zeros(R.shape([1, 64]), dtype="float32")
            k2 = R.call_tir_inplace(
                cls.added, (k, x), inplace_indices=[0], out_ty=R.Tensor((1, 64), "float32")
            )
            v2 = R.call_tir_inplace(
                cls.added, (v, x), inplace_indices=[0], out_ty=R.Tensor((1, 64), "float32")
            )
            w = R.multiply(v2, R.const(10.0))
            y = R.add(k2, w)
            R.output(y)
        return y


def test_a_product_is_not_computed_behind_the_change_of_its_operand():
    x = floats(*SHAPE)
    found = np.asarray(uc.compile(_Grown, measure=False)(x))
    np.testing.assert_allclose(found, 16 * np.exp(x), rtol=1e-5)


def test_buffers_of_zeros_are_two_and_new_in_each_call():
    program = uc.compile(_Cached, measure=False)
    for seed in range(2):
        x = floats(*SHAPE, seed=seed)
        np.testing.assert_allclose(np.asarray(program(x)), 11 * x, rtol=1e-5)


@I.ir_module
class _Turned:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(4), T.int64(16)), "float32")):
        for i, j in T.grid(T.int64(4), T.int64(16)):
            with T.sblock("grown"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = x[vi, vj] * T.float32(10)

    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
        cls = _Turned
        with R.dataflow():
            a = R.permute_dims(R.permute_dims(x))
            b = R.call_tir_inplace(cls.grown, (a,), inplace_indices=[0], out_ty=R.Tensor((4, 16), "float32"))
            c = R.add(b, x)
            R.output(c)
        return c


def test_a_copy_made_by_two_transposes_is_changed_and_not_the_input():
    x = floats(4, 16)
    given = x.copy()
    found = np.asarray(uc.compile(_Turned, measure=False)(given))
    np.testing.assert_allclose(found, 11 * x, rtol=1e-5)
    np.testing.assert_array_equal(given, x)


@tvm.register_global_func("collage.tests.ten_times")
def _ten_times(x: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
    x.copyfrom(x.numpy() * 10)
    return x


@tvm.register_global_func("collage.tests.ten_times_and_one_more")
def _ten_times_and_one_more(
    x: tvm.runtime.Tensor,
) -> list[tvm.runtime.Tensor]:
    more = tvm.runtime.tensor(x.numpy() + 1)
    return [_ten_times(x), more]


@I.ir_module
class _Packed:
    @R.function
    def main(x: R.Tensor((1, 64), "float32")) -> R.Tensor((1, 64), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.call_inplace_packed(
                "collage.tests.ten_times", a, inplace_indices=[0], ty_args=R.Tensor((1, 64), "float32")
            )
            c = R.sort(R.sin(x))
            d = R.add(b, c)
            R.output(d)
        return d


@I.ir_module
class _PackedWithMore:
    @R.function
    def main(x: R.Tensor((1, 64), "float32")) -> R.Tensor((1, 64), "float32"):
        with R.dataflow():
            a = R.exp(x)
            both = R.call_inplace_packed(
                "collage.tests.ten_times_and_one_more",
                a,
                inplace_indices=[0, -1],
                ty_args=[R.Tensor((1, 64), "float32"), R.Tensor((1, 64), "float32")],
            )
            b = both[0]
            more = both[1]
            c = R.sort(R.sin(x))
            d = R.add(R.add(b, more), c)
            R.output(d)
        return d


@pytest.mark.parametrize("module", [_Packed, _PackedWithMore])
def test_what_a_packed_function_changes_keeps_its_memory(module):
    """The memory of ``a`` must not be that of ``c``, although nothing reads ``a`` itself any more."""
    x = floats(*SHAPE)
    found = np.asarray(uc.compile(module, measure=False)(x))
    more = np.exp(x) + 1 if module is _PackedWithMore else 0
    np.testing.assert_allclose(found, 10 * np.exp(x) + more + np.sort(np.sin(x)), rtol=1e-5)
