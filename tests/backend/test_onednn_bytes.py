"""oneDNN's products of bytes, against numpy: every sum is exact."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_function import bound, constant, function, module_of, op, run
from tvm import relax
from tvm.target import Target

from unity_collage import reference, runtime
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
    (have,) = run(module, [x], [np.ascontiguousarray(want)])
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
    (have,) = run(module, [x], [np.ascontiguousarray(want)])
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-3)
    assert module.inspect_source("implementations").count("step") == 1


def convolution(weights: np.ndarray, groups: int = 1):
    return lambda x: op.nn.conv2d(
        x,
        relax.const(weights, "int8"),
        padding=[weights.shape[0] // 2] * 4,
        groups=groups,
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype="int32",
    )


def sums_of(x: np.ndarray, weights: np.ndarray, groups: int = 1) -> np.ndarray:
    """The convolution, window by window."""
    size, channels = weights.shape[0], weights.shape[3] // groups
    edge = size // 2
    wide = np.pad(x.astype("int64"), [(0, 0), (edge, edge), (edge, edge), (0, 0)])
    found = np.zeros((*x.shape[:3], weights.shape[3]), "int64")
    for i, j in np.ndindex(size, size):
        part = wide[:, i : i + x.shape[1], j : j + x.shape[2]]
        for group in range(groups):
            inputs = slice(group * weights.shape[2], (group + 1) * weights.shape[2])
            outputs = slice(group * channels, (group + 1) * channels)
            found[..., outputs] += part[..., inputs] @ weights[i, j, :, outputs].astype("int64")
    return found.astype("int32")


@needs_vnni
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("channels", "outputs", "size", "groups"),
    [(16, 32, 3, 1), (3, 16, 7, 1), (64, 48, 1, 1), (32, 32, 3, 32)],
)
def test_sums_of_convolutions_are_exact(
    kind: str, channels: int, outputs: int, size: int, groups: int
) -> None:
    weights, x = weights_of(size, size, channels // groups, outputs), bytes_of(kind, 1, 9, 10, channels)
    want = sums_of(x, weights, groups)
    module = module_of("onednn", function(convolution(weights, groups), x.shape, dtype=kind))
    (have,) = run(module, [x], [np.ascontiguousarray(want)])
    assert np.array_equal(have, want)
    assert "ref" not in module.inspect_source("implementations")


def number(value: float, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.asarray(value, dtype))


def scaled(sums: relax.Expr, channels: int) -> relax.Expr:
    """The sums times a factor for each channel, plus a bias."""
    shape = (1, 1, 1, channels)
    factors = relax.const(np.random.default_rng(1).uniform(1e-4, 1e-3, shape).astype("float32"))
    wide = bound(op.multiply(bound(op.astype(sums, "float32")), factors))
    return bound(op.add(wide, relax.const(np.random.default_rng(2).normal(size=shape).astype("float32"))))


def one_step(want: np.ndarray, have: np.ndarray) -> None:
    """All are equal, but for the few that lie between two steps."""
    apart = np.abs(have.astype("int64") - want.astype("int64"))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.01


@needs_vnni
@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("stored", ["int8", "uint8"])
def test_results_are_quantised_while_they_are_stored(kind: str, stored: str) -> None:
    weights, x = weights_of(3, 3, 16, 32), bytes_of(kind, 1, 9, 10, 16)

    def body(x: relax.Var) -> relax.Expr:
        real = bound(op.nn.relu(scaled(bound(convolution(weights)(x)), 32)))
        return op.quantize(
            real, number(0.0517), number(-3 if stored == "int8" else 3, stored), out_dtype=stored
        )

    func = function(body, x.shape, dtype=kind)
    (want,) = reference.run(func, [x])
    module = module_of("onednn", func)
    (have,) = run(module, [x], [np.ascontiguousarray(want)])
    one_step(want, have)
    assert 0 < (want == np.iinfo(stored).max).mean() < 1  # it saturates, but not everywhere
    assert module.inspect_source("implementations").count("step") == 1


@needs_vnni
def test_a_quantised_sum_is_one_step_with_its_convolution() -> None:
    weights, x, other = (
        weights_of(1, 1, 32, 64),
        bytes_of("uint8", 1, 9, 10, 32),
        bytes_of("uint8", 1, 9, 10, 64),
    )

    def body(x: relax.Var, other: relax.Var) -> relax.Expr:
        real = scaled(bound(convolution(weights)(x)), 64)
        first = bound(op.quantize(real, number(0.4137), number(121, "uint8"), out_dtype="uint8"))
        again = bound(op.dequantize(first, number(0.4137), number(121, "uint8")))
        beside = bound(op.dequantize(other, number(0.2917), number(110, "uint8")))
        real = bound(op.nn.relu(bound(op.add(again, beside))))
        return op.quantize(real, number(0.2194), number(0, "uint8"), out_dtype="uint8")

    func = function(body, x.shape, other.shape, dtype="uint8")
    (want,) = reference.run(func, [x, other])
    module = module_of("onednn", func)
    (have,) = run(module, [x, other], [np.ascontiguousarray(want)])
    one_step(want, have)
    assert module.inspect_source("implementations").count("step") == 1
    groups = [
        one for one in get("onednn").rule(host_target()).apply(DataflowGraph(func)) if isinstance(one, Found)
    ]
    assert max(group.inside.bit_count() for group in groups) == len(func.body.blocks[0].bindings)


def test_floats_are_not_quantised_while_they_are_stored() -> None:
    def body(x: relax.Var) -> relax.Expr:
        real = bound(op.matmul(x, constant(16, 8)))
        return op.quantize(real, number(0.05), number(0, "uint8"), out_dtype="uint8")

    found = list(get("onednn").rule(host_target()).apply(DataflowGraph(function(body, (4, 16)))))
    reasons = [one.reason for one in found if isinstance(one, Declined)]
    assert any("only products of bytes are quantised while they are stored" in reason for reason in reasons)


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
