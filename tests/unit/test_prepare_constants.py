"""Prepare computes what is known, and nothing that would make the program larger."""

from __future__ import annotations

import numpy as np
from prepare_checks import assert_becomes, assert_stays, prepared, values
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.rewrites import constants as c

W = values(2, 3)


def test_operators_on_constants_become_constants():
    @R.function
    def before(x: R.Tensor((3, 2), "float32")):
        with R.dataflow():
            a = R.permute_dims(R.const(W))
            b = R.add(a, R.const(1.0))
            y = R.multiply(x, b)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((3, 2), "float32")):
        with R.dataflow():
            y = R.multiply(x, R.const(W.T + 1))
            R.output(y)
        return y

    assert_becomes(before, after, c.FOLD_CONSTANTS)


def test_the_index_arithmetic_of_the_importer_is_gone():
    """x[1] as the importer writes it: an index below zero counts from the end."""

    @R.function
    def before(x: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            shape = R.shape_of(x)
            sizes = R.shape_to_tensor(shape)
            negative = R.less(R.const(1, "int64"), R.const(0, "int64"))
            size = R.take(sizes, R.const(0, "int64"), axis=0, mode="wrap")
            shifted = R.add(R.const(1, "int64"), size)
            index = R.where(negative, shifted, R.const(1, "int64"))
            y = R.take(x, index, axis=0, mode="fast")
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            y = R.take(x, R.const(1, "int64"), axis=0, mode="fast")
            R.output(y)
        return y

    assert_becomes(before, after, c.FOLD_SHAPE_OF, c.FOLD_SHAPE_TO_TENSOR, c.FOLD_CONSTANTS)


def test_indices_that_are_inputs_keep_their_arithmetic():
    @R.function
    def func(x: R.Tensor((4, 3), "float32"), ids: R.Tensor((2,), "int64")):
        with R.dataflow():
            negative = R.less(ids, R.const(0, "int64"))
            shifted = R.add(ids, R.const(4, "int64"))
            index = R.where(negative, shifted, ids)
            y = R.take(x, index, axis=0, mode="fast")
            R.output(y)
        return y

    assert_stays(func, c.FOLD_SHAPE_OF, c.FOLD_SHAPE_TO_TENSOR, c.FOLD_CONSTANTS)


def test_prim_funcs_on_constants_are_folded_and_go():
    @I.ir_module
    class Before:
        @T.prim_func(private=True, s_tir=True)
        def double(a: T.Buffer((T.int64(2),), "float32"), b: T.Buffer((T.int64(2),), "float32")):
            for i in range(T.int64(2)):
                with T.sblock("double"):
                    v = T.axis.spatial(T.int64(2), i)
                    b[v] = a[v] * T.float32(2)

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            cls = Before
            with R.dataflow():
                w = R.call_tir(cls.double, (R.const(np.float32([1, 2])),), out_ty=R.Tensor((2,), "float32"))
                y = R.add(x, w)
                R.output(y)
            return y

    @R.function
    def after(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.add(x, R.const(np.float32([2, 4])))
            R.output(y)
        return y

    assert_becomes(Before, after, c.FOLD_CONSTANTS)


def test_a_broadcast_that_would_bloat_the_program_stays():
    @R.function
    def func(x: R.Tensor((1024, 1024), "float32")):
        with R.dataflow():
            w = R.broadcast_to(R.const(1.5), R.shape([1024, 1024]))
            y = R.add(x, w)
            R.output(y)
        return y

    assert_stays(func, c.FOLD_CONSTANTS)


def test_shapes_of_unknown_size_are_not_made_up():
    @R.function
    def before(x: R.Tensor(("n", 3), "float32")):
        with R.dataflow():
            shape = R.shape_of(x)
            sizes = R.shape_to_tensor(shape)
            R.output(sizes)
        return sizes

    @R.function
    def after(x: R.Tensor(("n", 3), "float32")):
        n = T.int64()
        with R.dataflow():
            sizes = R.shape_to_tensor(R.shape([n, 3]))
            R.output(sizes)
        return sizes

    assert_becomes(before, after, c.FOLD_SHAPE_OF, c.FOLD_SHAPE_TO_TENSOR)


def test_a_shape_computed_from_constants_becomes_the_shape():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")) -> R.Tensor(ndim=2, dtype="float32"):
        sizes = R.add(R.const(np.int64([2, 1])), R.const(np.int64([1, 1])))
        shape = R.tensor_to_shape(sizes)
        return R.reshape(x, shape)

    @R.function
    def after(x: R.Tensor((2, 3), "float32")) -> R.Tensor(ndim=2, dtype="float32"):
        with R.dataflow():
            y = R.reshape(x, R.shape([3, 2]))
            R.output(y)
        return y

    assert_becomes(before, after, c.FOLD_CONSTANTS, c.FOLD_TENSOR_TO_SHAPE)


def test_a_shape_that_is_an_input_is_left_to_the_program():
    @R.function
    def func(x: R.Tensor((6,), "float32"), sizes: R.Tensor((2,), "int64")) -> R.Tensor(
        ndim=2, dtype="float32"
    ):
        shape = R.tensor_to_shape(sizes)
        return R.reshape(x, shape)

    text = prepared(func, c.FOLD_TENSOR_TO_SHAPE).script()
    assert "vm.builtin.tensor_to_shape" in text and "match_cast" in text


def test_projections_of_known_tuples_are_their_fields():
    @R.function
    def before(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        with R.dataflow():
            pair = (x, y)
            first = pair[0]
            z = R.add(first, x)
            R.output(z)
        return z

    @R.function
    def after(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        with R.dataflow():
            z = R.add(x, x)
            R.output(z)
        return z

    assert_becomes(before, after, c.PROJECT_TUPLE)


def test_projections_of_what_an_operator_returns_stay():
    @R.function
    def func(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            halves = R.split(x, 2)
            first = halves[0]
            R.output(first)
        return first

    assert_stays(func, c.PROJECT_TUPLE)


def test_an_infinite_scalar_is_printed_so_that_it_parses():
    @R.function
    def before(x: R.Tensor((2,), "float32"), mask: R.Tensor((2,), "bool")):
        with R.dataflow():
            y = R.where(mask, x, R.const(float("-inf")))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2,), "float32"), mask: R.Tensor((2,), "bool")):
        with R.dataflow():
            y = R.where(mask, x, R.const(np.float32([-np.inf])))
            R.output(y)
        return y

    assert_becomes(before, after, c.PRINTABLE_SCALARS)


def test_a_finite_scalar_stays_a_scalar():
    @R.function
    def func(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.add(x, R.const(2.0))
            R.output(y)
        return y

    assert_stays(func, c.PRINTABLE_SCALARS)


def test_equal_computations_become_one_constant():
    @R.function
    def before(x: R.Tensor((8, 16), "float32"), y: R.Tensor((8, 16), "float32")):
        with R.dataflow():
            a = R.ones((8, 16), "float32")
            b = R.negative(a)
            d = R.add(x, b)
            e = R.ones((8, 16), "float32")
            f = R.negative(e)
            g = R.add(y, f)
            z = R.multiply(d, g)
            R.output(z)
        return z

    bindings = prepared(before, c.FOLD_CONSTANTS)["main"].body.blocks[0].bindings
    first, second = (binding.value.args[1] for binding in bindings[:2])
    assert first.same_as(second)
    np.testing.assert_array_equal(first.value.numpy(), -1)
