"""oneDNN's products of bytes, against numpy: every sum is exact."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_function import bound, constant, function, module_of, op, run
from tvm import relax
from tvm.target import Target

from unity_collage import runtime
from unity_collage.backends import get
from unity_collage.backends.onednn.lowering import step
from unity_collage.backends.onednn.whole_numbers import has_products_of_bytes
from unity_collage.graph import DataflowGraph
from unity_collage.rules import Found
from unity_collage.rules.base import Declined
from unity_collage.target import host_target

WITHOUT = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"})
needs_vnni = pytest.mark.skipif(
    runtime.why_unavailable("onednn") is not None or not has_products_of_bytes(host_target()),
    reason="products of bytes need oneDNN and VNNI",
)


def bytes_of(kind: str, *shape: int) -> np.ndarray:
    """Random bytes; the first row has the largest numbers, whose sums in 16 bits would saturate."""
    limits = np.iinfo(kind)
    made = np.random.default_rng(3).integers(limits.min, limits.max + 1, shape).astype(kind)
    made.reshape(-1, shape[-1])[0] = limits.max
    return made


def weights_of(*shape: int) -> np.ndarray:
    made = bytes_of("int8", *shape)
    made[..., 0], made[..., 1] = -128, 127
    return made


def product(weights: np.ndarray):
    return lambda x: op.matmul(x, relax.const(weights, "int8"), out_dtype="int32")


@needs_vnni
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(5, 64), (1, 64), (2, 7, 64), (64,), (33, 64)])
def test_sums_are_exact(kind: str, shape: tuple[int, ...]) -> None:
    weights, x = weights_of(64, 48), bytes_of(kind, *shape)
    want = x.astype("int32") @ weights.astype("int32")
    module = module_of("onednn", function(product(weights), shape, dtype=kind))
    (have,) = run(module, [x], [want])
    assert np.array_equal(have, want)
    assert "ref" not in module.inspect_source("implementations")


@needs_vnni
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_what_follows_is_one_step_with_the_product(kind: str) -> None:
    weights, x = weights_of(64, 48), bytes_of(kind, 5, 64)
    scale = np.random.default_rng(1).uniform(0.001, 0.01, 48).astype("float32")

    def body(x: relax.Var) -> relax.Expr:
        wide = bound(op.astype(bound(product(weights)(x)), "float32"))
        return op.nn.relu(bound(op.add(bound(op.multiply(wide, relax.const(scale))), constant(48))))

    want = (x.astype("int32") @ weights.astype("int32")) * scale + constant(48).value.numpy()
    want = np.maximum(want, 0).astype("float32")
    module = module_of("onednn", function(body, (5, 64), dtype=kind))
    (have,) = run(module, [x], [want])
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-3)
    assert module.inspect_source("implementations").count("step") == 1


@pytest.mark.parametrize(
    ("left", "right", "out", "reason"),
    [
        ("uint8", "uint8", "int32", "src is uint8, weights are uint8, the result int32"),
        ("int8", "int8", "int8", "the result is int8 or has no static shape"),
        ("float32", "int8", "float32", "src is float32, weights are int8"),
    ],
)
def test_other_types_are_declined(left: str, right: str, out: str, reason: str) -> None:
    x, w = relax.Var("x", relax.TensorType((4, 8), left)), relax.Var("w", relax.TensorType((8, 8), right))
    call = relax.BlockBuilder().normalize(op.matmul(x, w, out_dtype=out))
    assert step(call) == reason


def test_processors_without_vnni_take_none() -> None:
    assert not has_products_of_bytes(WITHOUT)
    func = function(product(weights_of(16, 8)), (4, 16), dtype="uint8")
    found = list(get("onednn").rule(WITHOUT).apply(DataflowGraph(func)))
    assert [one.reason for one in found if isinstance(one, Declined)] == [
        "products of bytes may saturate on processors without VNNI"
    ]
    assert not any(isinstance(one, Found) for one in found)
