"""Chains of reshapes and permutations become one of each."""

from __future__ import annotations

from prepare_checks import assert_becomes, assert_stays
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.rewrites import views as v


def test_squeeze_expand_and_flatten_are_reshapes():
    @R.function
    def before(x: R.Tensor((2, 1, 3), "float32")):
        with R.dataflow():
            a = R.squeeze(x, axis=[1])
            b = R.nn.relu(a)
            c = R.expand_dims(b, axis=0)
            d = R.nn.relu(c)
            y = R.flatten(d)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 1, 3), "float32")):
        with R.dataflow():
            a = R.reshape(x, R.shape([2, 3]))
            b = R.nn.relu(a)
            c = R.reshape(b, R.shape([1, 2, 3]))
            d = R.nn.relu(c)
            y = R.reshape(d, R.shape([6]))
            R.output(y)
        return y

    assert_becomes(before, after, v.RESHAPE_FORM)


def test_a_squeeze_of_symbolic_shape_stays():
    @R.function
    def func(x: R.Tensor(("n", 1, 3), "float32")):
        with R.dataflow():
            y = R.squeeze(x, axis=[1])
            R.output(y)
        return y

    assert_stays(func, v.RESHAPE_FORM)


def test_reshapes_to_symbolic_shapes_are_one():
    @R.function
    def before(x: R.Tensor(("n", 6), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.reshape(x, R.shape([n, 1, 6]))
            y = R.reshape(a, R.shape([n, 2, 3]))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor(("n", 6), "float32")):
        n = T.int64()
        with R.dataflow():
            y = R.reshape(x, R.shape([n, 2, 3]))
            R.output(y)
        return y

    assert_becomes(before, after, v.MERGE_RESHAPES)


def test_reshapes_in_a_row_are_one():
    @R.function
    def before(x: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            a = R.reshape(x, R.shape([12]))
            b = R.reshape(a, R.shape([2, 6]))
            y = R.reshape(b, R.shape([3, 4]))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            y = R.reshape(x, R.shape([3, 4]))
            R.output(y)
        return y

    assert_becomes(before, after, v.MERGE_RESHAPES)


def test_reshapes_with_something_between_stay():
    @R.function
    def func(x: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            a = R.reshape(x, R.shape([12]))
            b = R.nn.softmax(a)
            y = R.reshape(b, R.shape([3, 4]))
            R.output(y)
        return y

    assert_stays(func, v.MERGE_RESHAPES)


def test_permutations_in_a_row_are_one():
    @R.function
    def before(x: R.Tensor((2, 3, 4), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, axes=[1, 2, 0])
            y = R.permute_dims(a, axes=[2, 1, 0])
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 3, 4), "float32")):
        with R.dataflow():
            y = R.permute_dims(x, axes=[0, 2, 1])
            R.output(y)
        return y

    assert_becomes(before, after, v.MERGE_PERMUTES)


def test_a_permutation_after_a_reshape_stays():
    @R.function
    def func(x: R.Tensor((6, 4), "float32")):
        with R.dataflow():
            a = R.reshape(x, R.shape([2, 3, 4]))
            y = R.permute_dims(a, axes=[2, 1, 0])
            R.output(y)
        return y

    assert_stays(func, v.MERGE_PERMUTES, v.PERMUTE_AS_RESHAPE, v.UNIT_AXES_FIRST, v.UNIT_AXES_STAY)


def test_moving_an_axis_of_size_one_is_a_reshape():
    @R.function
    def before(x: R.Tensor((2, 1, 3), "float32")):
        with R.dataflow():
            y = R.permute_dims(x, axes=[1, 0, 2])
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 1, 3), "float32")):
        with R.dataflow():
            y = R.reshape(x, R.shape([1, 2, 3]))
            R.output(y)
        return y

    assert_becomes(before, after, v.PERMUTE_AS_RESHAPE)


def test_symbolic_axes_may_be_of_any_size():
    @R.function
    def func(x: R.Tensor(("n", 1, 3), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.permute_dims(x, axes=[1, 0, 2])
            y = R.reshape(a, R.shape([n, 3]))
            R.output(y)
        return y

    assert_stays(func, v.PERMUTE_AS_RESHAPE, v.UNIT_AXES_FIRST, v.UNIT_AXES_STAY, v.MERGE_RESHAPES)


def test_unit_axes_are_dropped_before_a_permutation():
    """As between the split and the squeeze of an attention."""

    @R.function
    def before(x: R.Tensor((5, 1, 2, 3), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, axes=[1, 2, 0, 3])
            y = R.reshape(a, R.shape([2, 5, 3]))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((5, 1, 2, 3), "float32")):
        with R.dataflow():
            a = R.reshape(x, R.shape([5, 2, 3]))
            y = R.permute_dims(a, axes=[1, 0, 2])
            R.output(y)
        return y

    assert_becomes(before, after, v.UNIT_AXES_FIRST)


def test_a_reshape_that_joins_axes_stays_behind_the_permutation():
    @R.function
    def func(x: R.Tensor((1, 5, 2, 3), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, axes=[0, 2, 1, 3])
            y = R.reshape(a, R.shape([2, 15]))
            R.output(y)
        return y

    assert_stays(func, v.UNIT_AXES_FIRST)


def test_the_permutation_stays_where_others_read_it():
    @R.function
    def func(x: R.Tensor((5, 1, 2), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, axes=[2, 1, 0])
            b = R.reshape(a, R.shape([2, 5]))
            R.output(a, b)
        return (a, b)

    assert_stays(func, v.UNIT_AXES_FIRST)


def test_unit_axes_do_not_travel():
    @R.function
    def before(x: R.Tensor((5, 1, 2, 3), "float32")):
        with R.dataflow():
            y = R.permute_dims(x, axes=[1, 2, 0, 3])
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((5, 1, 2, 3), "float32")):
        with R.dataflow():
            a = R.reshape(x, R.shape([1, 5, 2, 3]))
            y = R.permute_dims(a, axes=[0, 2, 1, 3])
            R.output(y)
        return y

    assert_becomes(before, after, v.UNIT_AXES_STAY)


def test_unit_axes_at_rest_are_left():
    @R.function
    def func(x: R.Tensor((1, 5, 2), "float32")):
        with R.dataflow():
            y = R.permute_dims(x, axes=[0, 2, 1])
            R.output(y)
        return y

    assert_stays(func, v.UNIT_AXES_STAY)


def test_rows_of_a_product_are_reshaped_once():
    @R.function
    def before(
        x: R.Tensor((1, 6, 4), "float32"), w: R.Tensor((4, 5), "float32"), b: R.Tensor((5,), "float32")
    ):
        with R.dataflow():
            rows = R.reshape(x, R.shape([6, 4]))
            product = R.matmul(rows, w)
            total = R.add(product, b)
            y = R.reshape(total, R.shape([2, 3, 5]))
            z = R.nn.gelu(y)
            R.output(z)
        return z

    @R.function
    def after(
        x: R.Tensor((1, 6, 4), "float32"), w: R.Tensor((4, 5), "float32"), b: R.Tensor((5,), "float32")
    ):
        with R.dataflow():
            rows = R.reshape(x, R.shape([2, 3, 4]))
            product = R.matmul(rows, w)
            total = R.add(product, b)
            z = R.nn.gelu(total)
            R.output(z)
        return z

    assert_becomes(before, after, v.ROWS_BEFORE_PRODUCT, v.MERGE_RESHAPES)


def test_a_product_that_is_also_read_as_it_is_keeps_its_rows():
    @R.function
    def func(x: R.Tensor((1, 6, 4), "float32"), w: R.Tensor((4, 5), "float32")):
        with R.dataflow():
            rows = R.reshape(x, R.shape([6, 4]))
            product = R.matmul(rows, w)
            y = R.reshape(product, R.shape([1, 6, 5]))
            z = R.nn.relu(product)
            R.output(y, z)
        return y, z

    assert_stays(func, v.ROWS_BEFORE_PRODUCT)


def test_a_product_whose_columns_are_split_keeps_its_rows():
    @R.function
    def func(x: R.Tensor((1, 6, 4), "float32"), w: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            rows = R.reshape(x, R.shape([6, 4]))
            product = R.matmul(rows, w)
            y = R.reshape(product, R.shape([1, 6, 2, 4]))
            R.output(y)
        return y

    assert_stays(func, v.ROWS_BEFORE_PRODUCT)


def test_a_product_of_rows_as_they_came_keeps_them():
    @R.function
    def func(x: R.Tensor((6, 4), "float32"), w: R.Tensor((4, 5), "float32")):
        with R.dataflow():
            product = R.matmul(x, w)
            y = R.reshape(product, R.shape([1, 6, 5]))
            R.output(y)
        return y

    assert_stays(func, v.ROWS_BEFORE_PRODUCT)
