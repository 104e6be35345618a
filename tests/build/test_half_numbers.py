"""Sums in float16: TVM adds them up in float16, where 2048 + 1 is 2048; ours are added up in float32."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from unity_collage.legalization import half
from unity_collage.lowering.build import build
from unity_collage.reference.interpret import run
from unity_collage.target import host_target

ONES = np.ones((1, 64, 64, 2), "float16")
ROWS = np.ones((2, 4096), "float16")
SPREAD = np.linspace(-9, 9, 4 * 64, dtype="float16").reshape(4, 64)
KERNEL = np.ones((3, 33, 33, 2), "float16")
FAR = np.tile(np.array([-300, 300], "float16"), (2, 64))
"""The squares of its deviations exceed the range of float16."""
STEPS = np.full((2, 512), 1 + 2**-10, "float16")
"""The smallest number above 1: in float16 each product is rounded by half of what it adds."""


def module(body, *arrays):
    """``body`` on variables with the shapes and types of ``arrays``."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(*params)))
        builder.emit_func_output(out)
    return builder.get()


def built(mod, *arrays, legalizations=half.LEGALIZATIONS):
    """What TVM's naive kernels compute."""
    legal = relax.transform.LegalizeOps(legalizations)(mod)
    machine = relax.VirtualMachine(relax.build(legal, "llvm"), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()


LONG_SUMS = {
    "mean": (lambda x: op.mean(x, [-1]), [ROWS]),
    "mean over all axes": (lambda x: op.mean(x), [ROWS]),
    "sum": (lambda x: op.sum(x, [-1], keepdims=True), [ROWS]),
    "variance": (lambda x: op.variance(op.multiply(x, relax.const(3.0, "float16")), [-1]), [ROWS]),
    "softmax": (lambda x: op.nn.softmax(x), [ROWS]),
    "log_softmax": (lambda x: op.nn.log_softmax(x), [ROWS]),
    "layer_norm": (lambda x, g, b: op.nn.layer_norm(x, g, b, [-1]), [ROWS, ROWS[0], ROWS[1]]),
    "avg_pool2d": (lambda x: op.nn.avg_pool2d(x, (64, 64), layout="NHWC"), [ONES]),
    "adaptive_avg_pool2d": (lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"), [ONES]),
    "std": (lambda x: op.std(x, [-1]), [FAR]),
    "prod": (lambda x: op.prod(x, [-1]), [STEPS]),
    "einsum": (lambda x, y: op.einsum((x, y), "ij,kj->ik"), [ROWS, ROWS]),
    **{
        f"conv{rank}d_transpose": (
            getattr(op.nn, f"conv{rank}d_transpose"),
            [np.ones((1, 4096, *[2] * rank), "float16"), np.ones((4096, 2, *[1] * rank), "float16")],
        )
        for rank in (1, 2, 3)
    },
    "matmul": (lambda x, y: op.matmul(x, op.permute_dims(y)), [ROWS, ROWS]),
    "conv2d": (
        lambda x, w: op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI", out_dtype="float16"),
        [ONES, KERNEL],
    ),
}


@pytest.mark.parametrize("name", LONG_SUMS)
def test_a_long_sum_of_ones_is_exact(name):
    body, arrays = LONG_SUMS[name]
    mod = module(body, *arrays)
    (expected,) = run(mod["main"], arrays)
    found = built(mod, *arrays)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype("float32"), expected.astype("float32"), rtol=2e-3, atol=1e-6)


def test_a_cumulative_sum_is_rounded_once():
    for make, x in ((op.cumsum, ROWS), (op.cumprod, STEPS)):
        target = host_target()
        machine = relax.VirtualMachine(build(module(lambda x, make=make: make(x, 1), x), target), tvm.cpu())
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
        assert found.dtype == np.float16
        exact = (np.cumsum if make is op.cumsum else np.cumprod)(x.astype("float64"), axis=1)
        np.testing.assert_allclose(found.astype("float64"), exact, rtol=1e-3)


def test_tvm_alone_adds_up_in_float16():
    """The reason for all of this; when it fails, TVM has changed and ours may go."""
    mod = module(*[LONG_SUMS["mean"][0], *LONG_SUMS["mean"][1]])
    assert built(mod, ROWS, legalizations={}).max() < 0.6


@pytest.mark.parametrize(
    "body",
    [op.nn.gelu, op.nn.gelu_tanh, op.nn.silu, op.sigmoid, op.tanh, op.erf, op.exp],
    ids=["gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf", "exp"],
)
def test_an_activation_is_rounded_once(body):
    mod = module(body, SPREAD)
    (expected,) = run(mod["main"], [SPREAD])
    np.testing.assert_allclose(
        built(mod, SPREAD).astype("float32"), expected.astype("float32"), rtol=1e-3, atol=2e-7
    )


def test_the_size_of_the_operand_is_the_default_of_an_adaptive_pool():
    mod = module(lambda x: op.nn.adaptive_avg_pool2d(x, layout="NHWC"), ONES)
    np.testing.assert_array_equal(built(mod, ONES), ONES)


def test_float32_gets_the_kernels_of_tvm():
    wide = module(
        lambda x, y: op.nn.softmax(op.matmul(x, y)), SPREAD.astype("float32"), SPREAD.T.astype("float32")
    )
    ours = relax.transform.LegalizeOps(half.LEGALIZATIONS)(wide)
    tvm.ir.assert_structural_equal(ours, relax.transform.LegalizeOps()(wide))
