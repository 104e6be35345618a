"""ToPrecision of whole networks: what is safe in float16 reads and writes it, all else is between casts."""

import numpy as np
import pytest
import tvm
from test_to_precision import BIAS, W, built, product, written
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.errors import CollageError
from unity_collage.passes import ToPrecision
from unity_collage.pipeline import narrowing
from unity_collage.reference.interpret import run

W_NARROW, BIAS_NARROW = W.astype("float16"), BIAS.astype("float16")
WHOLE = ToPrecision("float16", whole=True)


def const(number):
    return relax.const(number, "float32")


def steps(body, *shapes):
    """The operators of ``body`` in whole float16 with the types of their results."""
    return written(WHOLE(built(body, *(shapes or [(8, 4)]))))


def test_bias_residual_and_activation_have_no_casts_between_them():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 4), "float32")) -> R.Tensor((8, 4), "float32"):
            with R.dataflow():
                lv = R.matmul(x, R.const(W))
                lv1 = R.add(lv, R.const(BIAS))
                lv2 = R.nn.relu(lv1)
                lv3 = R.matmul(lv2, R.const(W))
                lv4 = R.add(lv3, lv2)
                lv5 = R.nn.relu(lv4)
                gv = R.matmul(lv5, R.const(W))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((8, 4), "float32")) -> R.Tensor((8, 4), "float32"):
            with R.dataflow():
                x_f16 = R.astype(x, "float16")
                lv = R.matmul(x_f16, R.const(W_NARROW), out_dtype="float16")
                lv1 = R.add(lv, R.const(BIAS_NARROW))
                lv2 = R.nn.relu(lv1)
                lv3 = R.matmul(lv2, R.const(W_NARROW), out_dtype="float16")
                lv4 = R.add(lv3, lv2)
                lv5 = R.nn.relu(lv4)
                gv = R.matmul(lv5, R.const(W_NARROW), out_dtype="float32")
                R.output(gv)
            return gv

    tvm.ir.assert_structural_equal(WHOLE(Before), Expected)


@pytest.mark.parametrize(
    "safe",
    [
        lambda x: op.nn.softmax(x),
        lambda x: op.nn.layer_norm(x, relax.const(BIAS), relax.const(BIAS), axes=[-1]),
        lambda x: op.mean(x, axis=[0], keepdims=True),
        lambda x: op.nn.gelu(x),
        lambda x: op.clip(x, 0, 6),
        lambda x: op.where(relax.const(BIAS > 0), x, const(0.0)),
    ],
    ids=["softmax", "layer_norm", "mean", "gelu", "clip", "where"],
)
def test_what_is_safe_takes_and_gives_float16(safe):
    *_, middle, last = steps(lambda emit, x: product(emit(safe(emit(product(x))))))
    assert middle.endswith(":float16") and last == "matmul:float32"


@pytest.mark.parametrize(
    "wide", [op.square, op.exp, lambda x: op.sum(x, axis=[0], keepdims=True)], ids=["square", "exp", "sum"]
)
def test_what_leaves_the_range_of_float16_is_computed_in_float32(wide):
    types = [each.split(":")[1] for each in steps(lambda emit, x: product(emit(wide(emit(product(x))))))]
    assert types == ["float16", "float16", "float32", "float32", "float16", "float32"]


def test_a_norm_of_parts_has_its_epsilon_in_float32():
    def body(emit, x):
        y = emit(product(x))
        mean = emit(op.mean(emit(op.square(y)), axis=[-1], keepdims=True))
        root = emit(op.rsqrt(emit(op.add(mean, const(1e-12)))))
        return product(emit(op.multiply(y, root)))

    assert steps(body) == [
        "astype:float16", "matmul:float16", "astype:float32", "square:float32", "mean:float32", "add:float32",
        "rsqrt:float32", "astype:float16", "multiply:float16", "matmul:float32",
    ]  # fmt: skip


def test_a_number_that_is_too_small_for_float16_keeps_its_operator_in_float32():
    found = steps(lambda emit, x: product(emit(op.multiply(emit(product(x)), const(1e-6)))))
    assert "multiply:float32" in found


def test_a_pad_with_a_number_beyond_float16_is_computed_in_float32():
    def padded(number):
        return steps(
            lambda emit, x: product(emit(op.nn.pad(emit(product(x)), [1, 1, 0, 0], "constant", number)))
        )

    assert "nn.pad:float32" in padded(-3e38) and "nn.pad:float16" in padded(-3e4)


def test_a_tiny_bias_does_not_keep_a_sum_in_float32():
    tiny = relax.const(np.float32([1e-7, 0, 1e-6, 0]))
    assert "add:float16" in steps(lambda emit, x: product(emit(op.add(emit(product(x)), tiny))))


def masked(emit, x):
    """Scores of which a constant mask excludes the last column."""
    mask = np.float32([0, 0, 0, np.finfo("float32").min])
    return op.nn.softmax(emit(op.add(emit(product(x)), relax.const(mask))))


def test_a_mask_has_the_largest_number_of_float16():
    mod = WHOLE(built(masked, (8, 4)))
    (add,) = [b.value for b in mod["main"].body.blocks[0].bindings if getattr(b.value, "op", None) == relax.op.add(
        relax.const(BIAS), relax.const(BIAS)).op]  # fmt: skip
    np.testing.assert_array_equal(add.args[1].value.numpy(), np.float16([0, 0, 0, -65504]))


def test_a_mask_that_is_computed_is_finite_in_float16():
    def body(emit, x, keep):
        mask = emit(op.multiply(emit(op.subtract(const(1.0), keep)), const(-3e38)))
        return op.nn.softmax(emit(op.add(emit(product(x)), mask)))

    mod = WHOLE(built(body, (8, 4), (8, 4)))
    assert "clip:float32" in written(mod)
    (found,) = run(mod["main"], [np.ones((8, 4), "float32"), np.zeros((8, 4), "float32")])
    np.testing.assert_allclose(found.sum(-1), 1, atol=2e-3)


def test_an_embedding_is_looked_up_in_a_narrow_table():
    builder = relax.BlockBuilder()
    ids = relax.Var("ids", relax.TensorType((3,), "int64"))
    with builder.function("main", [ids]):
        with builder.dataflow():
            rows = builder.emit(op.take(relax.const(W), ids, axis=0))
            out = builder.emit_output(product(rows))
        builder.emit_func_output(out)
    assert written(WHOLE(builder.get())) == ["take:float16", "matmul:float32"]


def test_parts_of_a_tuple_stay_narrow():
    def body(emit, x):
        parts = emit(op.split(emit(product(x)), 2, axis=1))
        joined = emit(op.concat([emit(relax.TupleGetItem(parts, i)) for i in (1, 0)], axis=1))
        return emit(op.sum(joined, axis=[0]))

    assert steps(body) == [
        "astype:float16", "matmul:float16", "split:float16", "concat:float16", "astype:float32", "sum:float32",
    ]  # fmt: skip


def test_results_are_float32():
    mod = WHOLE(built(lambda emit, x: op.nn.relu(emit(product(x))), (8, 4)))
    assert written(mod) == ["astype:float16", "matmul:float16", "nn.relu:float16", "astype:float32"]
    assert str(mod["main"].ret_ty.dtype) == "float32"


def test_numbers_are_those_of_float32_up_to_rounding():
    def body(emit, x):
        y = emit(op.nn.gelu(emit(op.add(emit(product(x)), relax.const(BIAS)))))
        return product(emit(op.nn.softmax(emit(op.add(emit(product(y)), y)))))

    mod, x = built(body, (8, 4)), np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4)
    (expected,), (found,) = run(mod["main"], [x]), run(WHOLE(mod)["main"], [x])
    assert 0 < np.linalg.norm(found - expected) < 5e-3 * np.linalg.norm(expected)


def test_a_model_without_products_is_left_alone():
    mod = built(lambda emit, x: op.nn.softmax(emit(op.nn.relu(x))), (8, 4))
    tvm.ir.assert_structural_equal(WHOLE(mod), mod)


def test_float16_is_whole_on_a_gpu_and_refused_elsewhere():
    mod = built(lambda emit, x: op.nn.relu(emit(product(x))), (8, 4))
    (f16,) = narrowing("f16")
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        tvm.ir.assert_structural_equal(f16(mod), WHOLE(mod))
    with tvm.target.Target("llvm"), pytest.raises(CollageError, match="float16 is for GPUs"):
        f16(mod)


def test_whole_networks_are_not_narrowed_to_bfloat16():
    with pytest.raises(CollageError, match="float16 only"):
        ToPrecision("bfloat16", whole=True)
