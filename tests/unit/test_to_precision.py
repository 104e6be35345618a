"""ToPrecision on the smallest modules that show where values are narrowed, and on those that it must leave alone."""

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.errors import CollageError
from unity_collage.passes import ToPrecision

W = np.linspace(-1, 1, 4 * 4, dtype="float32").reshape(4, 4)
W_NARROW = W.astype(ml_dtypes.bfloat16)
BIAS = np.arange(4, dtype="float32")


def narrowed(mod):
    return ToPrecision()(mod)


def assert_becomes(before, expected):
    tvm.ir.assert_structural_equal(narrowed(before), expected)


def built(body, *shapes, dtype="float32"):
    """A module of one dataflow block, ``body`` being called with the builder and a variable of each shape."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(builder.emit, *params)))
        builder.emit_func_output(out)
    return builder.get()


def written(mod):
    """Each operator of ``main`` with the type of its result, in order; of tuples the first field's."""
    calls = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [
        f"{call.op.name.removeprefix('relax.')}:{getattr(call.ty, 'fields', [call.ty])[0].dtype}"
        for call in calls
        if isinstance(call, relax.Call)
    ]


def product(x, weights=W):
    return relax.op.matmul(x, relax.const(weights))


def test_what_lies_between_two_products_is_rounded_once_where_it_is_stored():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 4), "float32")) -> R.Tensor((8, 4), "float32"):
            with R.dataflow():
                lv = R.matmul(x, R.const(W))
                lv1 = R.add(lv, R.const(BIAS))
                lv2 = R.nn.relu(lv1)
                gv = R.matmul(lv2, R.const(W))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((8, 4), "float32")) -> R.Tensor((8, 4), "float32"):
            with R.dataflow():
                x_bf16 = R.astype(x, "bfloat16")
                lv = R.matmul(x_bf16, R.const(W_NARROW, "bfloat16"), out_dtype="float32")
                lv1 = R.add(lv, R.const(BIAS))
                lv2 = R.nn.relu(lv1)
                lv2_bf16 = R.astype(lv2, "bfloat16")
                gv = R.matmul(lv2_bf16, R.const(W_NARROW, "bfloat16"), out_dtype="float32")
                R.output(gv)
            return gv

    assert_becomes(Before, Expected)


def test_a_residual_is_stored_narrow_and_widened_by_its_reader():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 4), "float32")) -> R.Tensor((8, 4), "float32"):
            with R.dataflow():
                lv = R.matmul(x, R.const(W))
                lv1 = R.matmul(lv, R.const(W))
                lv2 = R.add(lv1, lv)
                gv = R.matmul(lv2, R.const(W))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((8, 4), "float32")) -> R.Tensor((8, 4), "float32"):
            with R.dataflow():
                x_bf16 = R.astype(x, "bfloat16")
                lv = R.matmul(x_bf16, R.const(W_NARROW, "bfloat16"), out_dtype="float32")
                lv_bf16 = R.astype(lv, "bfloat16")
                lv1 = R.matmul(lv_bf16, R.const(W_NARROW, "bfloat16"), out_dtype="float32")
                lv_f32 = R.astype(lv_bf16, "float32")
                lv2 = R.add(lv1, lv_f32)
                lv2_bf16 = R.astype(lv2, "bfloat16")
                gv = R.matmul(lv2_bf16, R.const(W_NARROW, "bfloat16"), out_dtype="float32")
                R.output(gv)
            return gv

    assert_becomes(Before, Expected)


def test_of_two_products_that_are_added_one_is_stored():
    def body(emit, x):
        left, right = emit(product(x)), emit(product(x))
        return product(emit(relax.op.add(left, right)))

    assert written(narrowed(built(body, (8, 4)))) == [
        "astype:bfloat16", "matmul:float32", "matmul:float32", "astype:bfloat16", "astype:float32", "add:float32",
        "astype:bfloat16", "matmul:float32",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "sensitive",
    [
        lambda x: relax.op.nn.softmax(x),
        lambda x: relax.op.nn.layer_norm(x, relax.const(BIAS), relax.const(BIAS), axes=[-1]),
        lambda x: relax.op.mean(x, axis=[0], keepdims=True),
    ],
    ids=["softmax", "layer_norm", "mean"],
)
def test_sensitive_operators_read_narrow_values_and_compute_in_float32(sensitive):
    mod = narrowed(built(lambda emit, x: product(emit(sensitive(emit(product(x))))), (8, 4)))
    first, *middle, last = written(mod)[1:]
    assert (first, last) == ("matmul:float32", "matmul:float32")
    assert [op.split(":")[1] for op in middle] == ["bfloat16", "float32", "float32", "bfloat16"]


def test_operators_that_move_elements_move_narrow_ones():
    def body(emit, x):
        parts = emit(relax.op.split(emit(product(x)), 2, axis=1))
        joined = emit(relax.op.concat([emit(relax.TupleGetItem(parts, i)) for i in (1, 0)], axis=1))
        return product(emit(relax.op.nn.relu(joined)))

    assert written(narrowed(built(body, (8, 4)))) == [
        "astype:bfloat16", "matmul:float32", "astype:bfloat16", "split:bfloat16", "concat:bfloat16",
        "nn.relu:bfloat16", "matmul:float32",
    ]  # fmt: skip


def test_results_stay_float32_where_others_read_the_narrow_value_too():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            turned = relax.op.permute_dims(builder.emit(relax.op.nn.relu(builder.emit(product(x)))))
            first = builder.emit_output(turned)
            second = builder.emit_output(product(builder.emit(relax.op.permute_dims(first))))
        builder.emit_func_output([first, second])
    mod = narrowed(builder.get())
    assert [str(field.dtype) for field in mod["main"].ret_ty.fields] == ["float32", "float32"]
    assert "permute_dims:bfloat16" in written(mod)


def test_the_last_product_and_what_follows_it_are_not_rounded():
    mod = narrowed(built(lambda emit, x: relax.op.nn.softmax(emit(product(x))), (8, 4)))
    assert written(mod) == ["astype:bfloat16", "matmul:float32", "nn.softmax:float32"]


@pytest.mark.parametrize(
    "mod",
    [
        built(lambda emit, x: relax.op.nn.softmax(emit(relax.op.nn.relu(x))), (8, 4)),
        built(lambda _emit, x, y: relax.op.matmul(x, y), (8, 4), (4, 4), dtype="int8"),
        built(lambda _emit, x, y: relax.op.matmul(x, y), (8, 4), (4, 4), dtype="float16"),
        built(lambda _emit, x, y: relax.op.matmul(x, y), (8, 4), (4, 4), dtype="bfloat16"),
    ],
    ids=["no product", "integers", "float16", "narrow already"],
)
def test_it_does_not_act_without_products_of_float32(mod):
    assert_becomes(mod, mod)


def test_a_kernel_that_somebody_has_made_is_left_alone():
    mod = built(lambda _emit, x: product(x), (8, 4))
    mod = tvm.IRModule({"main": mod["main"].with_attr("Primitive", 1)})
    assert_becomes(mod, mod)


def test_float8_is_not_a_storage_type():
    with pytest.raises(CollageError, match="float8_e4m3fn, only in bfloat16, float16"):
        ToPrecision("float8_e4m3fn")
