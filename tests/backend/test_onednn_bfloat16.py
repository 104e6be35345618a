"""oneDNN's primitives on bfloat16, against numpy: float32 sums of narrow factors, rounded once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from lowered_function import bound, constant, function, module_of, nn, op
from tvm import relax

from unity_collage import reference, runtime
from unity_collage.measure.guard import output_types
from unity_collage.measure.inputs import random_inputs

pytestmark = pytest.mark.skipif(
    (
        runtime.why_unavailable("onednn")
        or ("" if "avx512" in runtime.describe("onednn").lower() else "no AVX-512")
    )
    != "",
    reason="oneDNN has bfloat16 from AVX-512 on",
)


def narrow(*shape: int) -> relax.Expr:
    values = np.random.default_rng(7).standard_normal(shape, dtype="float32")
    return relax.const(values.astype(ml_dtypes.bfloat16), "bfloat16")


def rounded(x: relax.Expr) -> relax.Expr:
    return op.astype(x, "bfloat16")


def wide(x: relax.Expr) -> relax.Expr:
    return bound(op.astype(x, "float32"))


def convolution(x, out=16, channels=8, size=3, **attrs):
    weights = narrow(out, channels // attrs.get("groups", 1), size, size)
    return bound(
        nn.conv2d(x, weights, data_layout="NHWC", out_dtype="float32", padding=(size // 2,) * 2, **attrs)
    )


def residual(x, y):
    return rounded(nn.relu(bound(op.add(bound(op.add(convolution(x), constant(16))), wide(y)))))


CASES = {
    "convolution": (lambda x: convolution(x), [(1, 9, 7, 8)]),
    "bias_relu": (lambda x: rounded(nn.relu(op.add(convolution(x), constant(16)))), [(1, 9, 7, 8)]),
    "residual": (residual, [(1, 9, 7, 8), (1, 9, 7, 16)]),
    "strided": (lambda x: rounded(convolution(x, strides=(2, 2))), [(2, 9, 7, 8)]),
    "one_by_one": (lambda x: rounded(convolution(x, size=1)), [(1, 9, 7, 8)]),
    "depthwise": (lambda x: rounded(convolution(x, 32, 32, groups=32)), [(1, 9, 7, 32)]),
    "grouped": (lambda x: rounded(convolution(x, 32, 32, groups=4)), [(1, 9, 7, 32)]),
    "odd_channels": (lambda x: rounded(convolution(x, 17, 5)), [(1, 9, 7, 5)]),
    "product": (lambda x: bound(op.matmul(x, narrow(24, 10), "float32")), [(5, 24)]),
    "product_gelu": (
        lambda x: rounded(nn.gelu(op.add(bound(op.matmul(x, narrow(24, 32), "float32")), constant(32)))),
        [(5, 24)],
    ),
    "products_of_heads": (lambda x, y: rounded(bound(op.matmul(x, y, "float32"))), [(3, 5, 24), (3, 24, 7)]),
    "softmax": (lambda x: rounded(nn.softmax(wide(x))), [(6, 40)]),
    "layer_norm": (
        lambda x: rounded(nn.layer_norm(wide(x), constant(40), constant(40), axes=[-1])),
        [(6, 40)],
    ),
    "max_pool": (lambda x: nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), [(1, 8, 8, 16)]),
    "concat": (lambda x, y: op.concat([x, y], axis=1), [(6, 40), (6, 24)]),
    "widening": (lambda x: op.astype(x, "float32"), [(6, 40)]),
    "transposed": (lambda x: op.permute_dims(x), [(6, 40)]),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers(name):
    body, shapes = CASES[name]
    func = function(body, *shapes, dtype="bfloat16")
    module = module_of("onednn", func)
    inputs = random_inputs(func)
    outputs = [tvm.runtime.empty(shape, dtype) for shape, dtype in output_types(func)]
    module.get_function("main")(*map(tvm.runtime.tensor, inputs), *outputs)
    for have, want in zip(outputs, reference.run(func, inputs), strict=True):
        assert _error(have.numpy(), want) <= (2**-7 if str(want.dtype) == "bfloat16" else 2e-5)
    assert "ref:any" not in module.inspect_source("implementations")


def _error(have: np.ndarray, want: np.ndarray) -> float:
    """Of the largest element; one unit in the last of bfloat16's eight bits is 2^-7 of it at most."""
    assert have.dtype == want.dtype
    have, want = have.astype(np.float64), want.astype(np.float64)
    return float(np.abs(have - want).max() / np.abs(want).max())


def test_casts_and_post_operations_are_one_primitive():
    func = function(residual, (1, 9, 7, 8), (1, 9, 7, 16), dtype="bfloat16")
    lines = module_of("onednn", func).inspect_source("implementations").split("\n")
    assert sum("step" in line for line in lines) == 1
