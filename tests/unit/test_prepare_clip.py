"""Every bound is one clip, or a relu."""

from __future__ import annotations

from math import inf

import pytest
from prepare_checks import assert_becomes, assert_stays, prepared
from test_prepare_arithmetic import const, function
from tvm import relax, tirx, topi
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.rewrites import DEFAULT_REWRITES
from unity_collage.rewrites import clip as c
from unity_collage.rewrites.constants import FOLD_CONSTANTS


@I.ir_module
class Relu6OfTheImporter:
    """ONNX's Clip: a bound that is not a number means none, and the extrema are PrimFuncs."""

    @T.prim_func(private=True, s_tir=True)
    def maximum(
        a: T.Buffer((T.int64(2), T.int64(3)), "float32"),
        low: T.Buffer((), "float32"),
        out: T.Buffer((T.int64(2), T.int64(3)), "float32"),
    ):
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.sblock("maximum"):
                v, w = T.axis.remap("SS", [i, j])
                out[v, w] = T.max(a[v, w], low[()])

    @T.prim_func(private=True, s_tir=True)
    def minimum(
        a: T.Buffer((T.int64(2), T.int64(3)), "float32"),
        out: T.Buffer((T.int64(2), T.int64(3)), "float32"),
    ):
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.sblock("minimum"):
                v, w = T.axis.remap("SS", [i, j])
                out[v, w] = T.min(a[v, w], T.float32(6.0))

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        cls = Relu6OfTheImporter
        with R.dataflow():
            none = R.isnan(R.const(0.0))
            low = R.where(none, R.const(-inf), R.const(0.0))
            a = R.call_tir(cls.maximum, (x, low), out_ty=R.Tensor((2, 3), "float32"))
            y = R.call_tir(cls.minimum, (a,), out_ty=R.Tensor((2, 3), "float32"))
            R.output(y)
        return y


def test_relu6_of_the_importer_is_a_clip_and_its_prim_funcs_are_gone():
    after = function(lambda x: relax.op.clip(x, 0.0, 6.0))
    assert_becomes(Relu6OfTheImporter, after, *DEFAULT_REWRITES)


def test_extrema_of_call_tir_are_operators():
    after = prepared(Relu6OfTheImporter, c.EXTREMUM_OF_CALL_TIR, FOLD_CONSTANTS)
    assert "R.maximum" in after.script() and "call_tir" not in after.script()


@I.ir_module
class MaximumOfAnotherElement:
    @T.prim_func(private=True, s_tir=True)
    def maximum(
        a: T.Buffer((T.int64(3),), "float32"),
        low: T.Buffer((T.int64(3),), "float32"),
        out: T.Buffer((T.int64(3),), "float32"),
    ):
        for i in range(T.int64(3)):
            with T.sblock("maximum"):
                v = T.axis.spatial(T.int64(3), i)
                out[v] = T.max(a[T.int64(2) - v], low[v])

    @R.function
    def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
        cls = MaximumOfAnotherElement
        with R.dataflow():
            z = R.call_tir(cls.maximum, (x, y), out_ty=R.Tensor((3,), "float32"))
            R.output(z)
        return z


@I.ir_module
class MaximumOfAPart:
    @T.prim_func(private=True, s_tir=True)
    def maximum(a: T.Buffer((T.int64(3),), "float32"), out: T.Buffer((T.int64(3),), "float32")):
        for i in range(T.int64(2)):
            with T.sblock("maximum"):
                v = T.axis.spatial(T.int64(2), i)
                out[v] = T.max(a[v], T.float32(0.0))

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        cls = MaximumOfAPart
        with R.dataflow():
            z = R.call_tir(cls.maximum, (x,), out_ty=R.Tensor((3,), "float32"))
            R.output(z)
        return z


@pytest.mark.parametrize("mod", [MaximumOfAnotherElement, MaximumOfAPart])
def test_prim_funcs_that_do_something_else_stay(mod):
    assert_stays(mod, *DEFAULT_REWRITES)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        (c.CLIP_FORM, lambda x: relax.op.maximum(x, const(0.5)), lambda x: relax.op.clip(x, 0.5, inf)),
        (c.CLIP_FORM, lambda x: relax.op.minimum(x, const([[6]])), lambda x: relax.op.clip(x, -inf, 6.0)),
        (c.CLIP_CANONICAL, relax.op.nn.relu6, lambda x: relax.op.clip(x, 0.0, 6.0)),
        (
            c.MERGE_CLIPS,
            lambda x: relax.op.clip(relax.op.clip(x, 0.0, inf), -1.0, 6.0),
            lambda x: relax.op.clip(x, 0.0, 6.0),
        ),
        (
            c.MERGE_CLIPS,
            lambda x: relax.op.nn.relu(relax.op.clip(x, -1.0, 2.0)),
            lambda x: relax.op.clip(x, 0.0, 2.0),
        ),
        (c.CLIP_CANONICAL, lambda x: relax.op.clip(x, 0.0, inf), relax.op.nn.relu),
        (c.CLIP_CANONICAL, lambda x: relax.op.clip(x, 0, 1), lambda x: relax.op.clip(x, 0.0, 1.0)),
    ],
)
def test_bounds_have_one_form(rule, before, after):
    assert_becomes(function(before), function(after), rule)


@pytest.mark.parametrize(
    ("rule", "make", "dtype"),
    [
        (c.CLIP_FORM, lambda x: relax.op.maximum(x, const([0, 1, 2])), "float32"),
        (c.CLIP_FORM, lambda x: relax.op.maximum(x, const([[[0.5]]])), "float32"),
        (c.CLIP_FORM, lambda x: relax.op.maximum(x, const([float("nan")])), "float32"),
        (c.CLIP_FORM, lambda x: relax.op.maximum(x, const(0, "int32")), "int32"),
        (c.MERGE_CLIPS, lambda x: relax.op.clip(relax.op.nn.relu(x), -2.0, -1.0), "float32"),
        (c.MERGE_CLIPS, lambda x: relax.op.clip(relax.op.tanh(x), 0.0, 1.0), "float32"),
        (c.CLIP_CANONICAL, lambda x: relax.op.clip(x, -1.0, inf), "float32"),
        (c.CLIP_CANONICAL, lambda x: relax.op.clip(x, 0, 1), "int32"),
    ],
)
def test_other_bounds_stay(rule, make, dtype):
    assert_stays(function(make, dtype=dtype), rule)


def test_relu_of_the_importer_may_have_symbolic_axes():
    @R.function
    def after(x: R.Tensor(("n", 3), "float32")):
        with R.dataflow():
            z = R.nn.relu(x)
            R.output(z)
        return z

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([tirx.Var("n", "int64"), 3], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit_te(topi.maximum, x, 0.0))
        builder.emit_func_output(y)
    assert_becomes(builder.get(), after, *DEFAULT_REWRITES)
