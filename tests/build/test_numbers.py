"""Constants of one element are numbers in kernels, and constants keep their types."""

import numpy as np
import pytest
import tvm
from schedule_checks import TARGET, check, floats
from tvm import relax
from tvm.relax import op

from unity_collage.annotations import LIFTED
from unity_collage.backends.tvm.backend import TVM
from unity_collage.measure.kernels import build_kernel, output_tensors
from unity_collage.passes import FuseRemaining


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_where_with_numbers_is_one_kernel(side):
    number, other = relax.const(2.0, "float32"), relax.const(-np.inf, "float32")

    def build(x):
        return op.exp(
            op.where(
                op.greater(x, relax.const(0.5, "float32")),
                x if side == "right" else number,
                x if side == "left" else other,
            )
        )

    def reference(x):
        return np.exp(
            np.where(
                x > 0.5, x if side == "right" else np.float32(2), x if side == "left" else np.float32(-np.inf)
            )
        )

    check(build, reference, floats(16, 24), one_kernel=True)


def test_where_of_16_bits_and_a_condition_that_broadcasts():
    def build(condition, x):
        y = op.where(op.astype(condition, "bool"), op.astype(x, "float16"), relax.const(3.0, "float16"))
        return op.astype(op.add(y, y), "float32")

    check(build, lambda c, x: 2 * np.where(c != 0, x.astype("float16"), np.float16(3)).astype("float32"),
          (floats(8, 1, 16) > 0).astype("float32"), floats(4, 1), one_kernel=True)  # fmt: skip


def one_kernel(build, x):
    """The module of a function that is to be one kernel, and its results."""
    builder = relax.BlockBuilder()
    param = relax.Var("x", relax.TensorType(x.shape, str(x.dtype)))
    with builder.function("kernel", [param], attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            out = builder.emit_output(build(param))
        inner = builder.emit_func_output(out)
    outer = relax.Var("x", param.ty)
    with builder.function("main", [outer]):
        with builder.dataflow():
            out = builder.emit_output(relax.Call(inner, [outer]))
        builder.emit_func_output(out)
    with TARGET:
        mod = FuseRemaining()(builder.finalize())
        machine = relax.VirtualMachine(relax.build(mod, TARGET), tvm.cpu())
    return mod, machine["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("value", [3.0, -np.inf])
def test_a_constant_of_one_element_is_a_number(shape, value):
    number = relax.const(np.full(shape, value, "float32"))
    rows = relax.const(np.full((1, 1), value, "float32"))

    def build(x):
        return op.concat([op.maximum(op.exp(x), number), op.where(op.equal(x, number), rows, x), x], 0)

    x = floats(1, 8)
    mod, found = one_kernel(build, x)
    np.testing.assert_allclose(found, np.concatenate([np.maximum(np.exp(x), value), x, x]), rtol=1e-5)
    assert "GenericConst" not in mod["main"].script()


@pytest.mark.parametrize("dtype", ["int64", "float64", "bool", "float16"])
def test_large_constants_keep_their_types(dtype):
    """relax.const makes 32 bits of 64 where no type is given, and then no kernel with such a constant has a cost."""
    kind = relax.TensorType((4,), dtype)
    params = [relax.Var("x", kind), relax.Var("c0", kind)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(op.not_equal(*params))
        builder.emit_func_output(out)
    func = builder.finalize()["main"].without_attr("global_symbol").with_attr(LIFTED, 1)
    x, weights = np.array([0, 1, 0, 1], dtype), np.array([1, 1, 0, 0], dtype)
    function, constants = build_kernel(func, [x, weights], TVM, TARGET)
    (result,) = output_tensors(func)
    function(tvm.runtime.tensor(x), *constants, result)
    assert result.numpy().tolist() == [True, False, False, True]
