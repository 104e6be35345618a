"""What ``evaluate``, ``why_not`` and ``run`` promise, whatever the operator."""

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage import reference
from unity_collage.errors import CollageError

X = np.arange(6, dtype="float32").reshape(2, 3)


def var(*shape, dtype: str = "float32") -> relax.Var:
    return relax.Var("x", relax.TensorType(shape, dtype))


def test_shapes_numbers_and_constants_come_from_the_call():
    assert reference.evaluate(relax.op.reshape(var(2, 3), (3, 2)), [X, None]).shape == (3, 2)
    assert reference.evaluate(relax.op.clip(var(2, 3), 1, 3), [X]).max() == 3
    assert reference.evaluate(relax.op.add(var(2, 3), relax.const(X)), [X, None])[1, 2] == 10
    assert reference.evaluate(relax.op.add(var(2, 3), relax.const(X)), [X, X + 1])[1, 2] == 11


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats_are_computed_wide_and_rounded_once(dtype):
    """1 + 1/1024 summed 64 times: partial sums in 8 or 11 bits would lose it."""
    small = np.full((64,), 1 + 2**-7, dtype=getattr(ml_dtypes, dtype, dtype))
    total = reference.evaluate(relax.op.sum(var(64, dtype=dtype)), [small])
    assert total.shape == () and str(total.dtype) == dtype
    assert float(total) == float(np.array(64.5).astype(total.dtype))


def test_results_of_integers_wrap_and_keep_their_dtype():
    full = np.full((3,), 100, dtype="int8")
    result = reference.evaluate(relax.op.add(var(3, dtype="int8"), var(3, dtype="int8")), [full, full])
    assert result.dtype == np.int8 and result.tolist() == [-56] * 3


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (relax.op.unique(var(3)), "relax.unique has no numpy reference"),
        (
            relax.op.take(var(3), relax.const([1]), 0, "nan"),
            "relax.take with mode nan has no numpy reference",
        ),
        (relax.Call(relax.ExternFunc("f"), [var(3)]), "not an operator"),
        (
            relax.op.image.resize2d(
                var(1, 2, 4, 4), (8, 8), coordinate_transformation_mode="tf_crop_and_resize"
            ),
            "relax.image.resize2d with coordinates tf_crop_and_resize has no numpy reference",
        ),
    ],
)
def test_a_refusal_names_what_is_missing(call, reason):
    assert reason in (reference.why_not(call) or "")
    with pytest.raises(reference.Unsupported, match=reason):
        reference.evaluate(call, [X])


def test_what_fails_on_the_values_is_a_reason_too():
    call = relax.op.take(var(2, 3), var(1, dtype="int64"), 0)
    assert reference.why_not(call) is None
    with pytest.raises(reference.Unsupported, match=r"relax.take: index 7 is out of bounds"):
        reference.evaluate(call, [X, np.array([7])])
    assert issubclass(reference.Unsupported, CollageError)


@I.ir_module
class Program:
    @R.function(private=True)
    def double(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        n = T.int64()
        with R.dataflow():
            y: R.Tensor((n, 3), "float32") = R.add(x, x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), s: R.Shape(["m"])):
        n, m = T.int64(), T.int64()
        cls = Program
        with R.dataflow():
            a = cls.double(x)
            b = R.reshape(a, R.shape([n * 3]))
            c = (b, R.shape_of(x))
            d = R.full(R.shape([m, n]), R.const(2.0, "float32"), "float32")
            e = R.multiply(c[0], R.const(10.0, "float32"))
            R.output(c, d, e)
        return (e, d, c)


def test_run_binds_symbolic_sizes_and_calls_functions_of_the_module():
    product, full, first, shape = reference.run(Program["main"], [X, (4,)], Program)
    assert product.tolist() == (20 * X).ravel().tolist() and np.array_equal(first * 10, product)
    assert full.shape == (4, 2)
    assert shape.tolist() == [2, 3]
    with pytest.raises(reference.Unsupported, match="double"):
        reference.run(Program["main"], [X, (4,)])
    with pytest.raises(reference.Unsupported, match="takes 2 inputs, 1 were given"):
        reference.run(Program["main"], [X], Program)


@I.ir_module
class Composite:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        @R.function
        def fused(y: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            R.func_attr({"Composite": "test.fused"})
            with R.dataflow():
                a = R.nn.relu(y)
                b: R.Tensor((2, 3), "float32") = R.add(a, R.const(1.0, "float32"))
                R.output(b)
            return b

        z: R.Tensor((2, 3), "float32") = fused(fused(x))
        return z

    @R.function
    def branch(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2, 3), "float32"):
        if c:
            y = R.add(x, x)
        else:
            y = R.negative(x)
        return y

    @R.function
    def foreign(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return R.call_dps_packed("some.kernel", (x,), out_ty=R.Tensor((2, 3), "float32"))


def test_run_calls_inner_functions():
    assert np.array_equal(reference.run(Composite["main"], [X - 3])[0], np.maximum(X - 3, 0) + 2)


def test_run_takes_one_branch():
    assert np.array_equal(reference.run(Composite["branch"], [X, np.array(True)])[0], X + X)
    assert np.array_equal(reference.run(Composite["branch"], [X, np.array(False)])[0], -X)


def test_run_names_what_it_cannot_call():
    with pytest.raises(reference.Unsupported, match=r"relax\.call_dps_packed has no numpy reference"):
        reference.run(Composite["foreign"], [X])


def test_inputs_and_constants_are_left_alone():
    table = relax.const(X)
    kept = table.value.numpy()
    given = X.copy()
    indices = relax.const(np.array([[0, 0, 0]], "int64"))
    call = relax.op.scatter_elements(var(2, 3), indices, var(1, 3))
    reference.evaluate(call, [given, None, np.full((1, 3), 9, "float32")])
    reference.evaluate(
        relax.op.scatter_elements(table, indices, var(1, 3)), [None, None, np.ones((1, 3), "float32")]
    )
    assert np.array_equal(given, X) and np.array_equal(table.value.numpy(), kept)


def test_every_operator_of_the_table_exists():
    from unity_collage.reference.table import OPERATORS

    known = set(tvm.ir.Op.list_op_names())
    assert [name for name in OPERATORS if name not in known] == []
