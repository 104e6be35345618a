"""MatMul, Gemm and normalisations of ONNX, of old operator sets, too: the numbers of other runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_case import by_reference, check, one_node, run

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx.importer import imported


def drawn(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([4], [4]),
        ([4], [2, 4, 3]),
        ([2, 3, 4], [4]),
        ([2, 1, 3, 4], [5, 4, 2]),
        ([3, 0], [0, 2]),
        ([0, 3], [3, 2]),
    ],
)
def test_matmul(a: list[int], b: list[int]):
    feeds = {"a": drawn(*a), "b": drawn(*b, seed=1)}
    check(one_node("MatMul", feeds), feeds, want=[np.matmul(*feeds.values())])


def test_matmul_of_any_size():
    feeds = {"a": drawn(2, 3, 4), "b": drawn(2, 4, 5)}
    check(one_node("MatMul", feeds, dims={"a": ["n", "m", "k"], "b": ["n", "k", 5]}), feeds)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_matmul_of_integers_wraps(dtype: str):
    a = np.array([[1 << 31, 3], [5, 7]]).astype(dtype)
    feeds = {"a": a, "b": a.T.copy()}
    check(one_node("MatMul", feeds), feeds, want=[a @ a.T])


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_products_of_float16_add_up_in_float32(op: str):
    feeds = {"a": np.ones([1, 4096], "float16"), "b": np.ones([4096, 1], "float16")}
    assert run(one_node(op, feeds), feeds)[0].item() == 4096


GEMMS: dict[str, tuple[list[int], dict[str, Any]]] = {
    "plain": ([3, 4], {}),
    "factors": ([1, 4], {"alpha": 0.5, "beta": 2.0}),
    "transposed": ([3, 1], {"transA": 1, "transB": 1, "beta": 0.25}),
    "vector": ([4], {"transB": 1}),
    "scalar": ([], {"transA": 1}),
    "no factor of C": ([4], {"beta": 0.0}),
}


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize(("c", "options"), GEMMS.values(), ids=GEMMS)
def test_gemm(c: list[int], options: dict[str, Any], opset: int):
    a, b = drawn(3, 5), drawn(5, 4, seed=1)
    feeds = {
        "a": a.T.copy() if options.get("transA") else a,
        "b": b.T.copy() if options.get("transB") else b,
        "c": drawn(*c, seed=2),
    }
    check(one_node("Gemm", feeds, opset=opset, constant=["b"], **options), feeds)


def test_gemm_of_batches_is_refused():
    with pytest.raises(ModelError, match=r"^Gemm 'node': .*its operands have the ranks 3 and 2, not 2"):
        imported(one_node("Gemm", {"a": drawn(1, 2, 3), "b": drawn(3, 4)}))


NORMS: dict[str, tuple[str, int, list[list[int]], dict[str, Any]]] = {
    "batches of opset 7": ("BatchNormalization", 7, [[2, 3, 4, 5], *[[3]] * 4], {}),
    "batches of opset 9": ("BatchNormalization", 9, [[2, 3], *[[3]] * 4], {"epsilon": 1e-3}),
    "batches of opset 15": ("BatchNormalization", 15, [[2, 3, 4, 5, 2], *[[3]] * 4], {}),
    "instances": ("InstanceNormalization", 7, [[2, 3, 4, 5], [3], [3]], {"epsilon": 1e-3}),
    "layers": ("LayerNormalization", 17, [[2, 3, 4], [4], [4]], {"epsilon": 1e-3}),
    "layers over two axes": ("LayerNormalization", 17, [[2, 3, 4], [3, 4], [3, 4]], {"axis": 1}),
    "layers without a bias": ("LayerNormalization", 17, [[2, 3, 4], [4]], {}),
    "layers of a row of factors": ("LayerNormalization", 17, [[2, 3, 4], [1, 4], [1, 4]], {}),
    "channels": ("LRN", 13, [[2, 7, 3, 4]], {"size": 5, "alpha": 0.1}),
    "norm 1": ("LpNormalization", 7, [[2, 3, 4]], {"p": 1, "axis": 1}),
    "norm 2": ("LpNormalization", 7, [[2, 3, 4]], {}),
    "mean and variance": ("MeanVarianceNormalization", 9, [[2, 3, 4, 5]], {"axes": [0, 2]}),
}


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize(("op", "opset", "shapes", "options"), NORMS.values(), ids=NORMS)
def test_norms(op: str, opset: int, shapes: list[list[int]], options: dict[str, Any], free: bool):
    feeds = {f"x{n}": drawn(*shape, seed=n) for n, shape in enumerate(shapes)}
    if op == "BatchNormalization":
        feeds["x4"] = np.abs(feeds["x4"]) + 0.1
    dims = {"x0": ["n", *shapes[0][1:-1], "w" if op in ("InstanceNormalization", "LRN") else shapes[0][-1]]}
    model = one_node(op, feeds, opset=opset, dims=dims if free else None, **options)
    check(model, feeds, atol=1e-4)


@pytest.mark.parametrize(("shape", "size"), [([2, 7, 3, 4], 4), ([2, 7, 3], 3), ([1, 6, 2, 3, 2], 2)])
def test_local_response_norm(shape: list[int], size: int):
    # ONNX Runtime takes four axes and odd sizes only.
    x = drawn(*shape)
    sums = np.stack(
        [(x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1] ** 2).sum(1) for c in range(shape[1])], 1
    )
    want = x / (2 + np.float32(0.3 / size) * sums) ** np.float32(0.5)
    model = one_node("LRN", {"x": x}, size=size, alpha=0.3, beta=0.5, bias=2.0)
    check(model, {"x": x}, want=[want])


def test_layer_norm_gives_mean_and_spread():
    feeds = {"x": drawn(2, 3, 4), "g": drawn(4, seed=1), "b": drawn(4, seed=2)}
    check(one_node("LayerNormalization", feeds, 3), feeds)


def test_the_norm_of_zeros_is_zero():
    feeds = {"x": np.zeros([2, 3], "float32")}
    check(one_node("LpNormalization", feeds, opset=22), feeds, want=[feeds["x"]])


@pytest.mark.parametrize(("opset", "count"), [(18, 2), (21, 6)])
def test_group_norm_has_factors_of_groups_or_of_channels(opset: int, count: int):
    feeds = {"x": drawn(2, 6, 3, 4), "g": drawn(count, seed=1), "b": drawn(count, seed=2)}
    grouped = feeds["x"].reshape(2, 2, -1).astype("float64")
    normal = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    gamma, beta = (np.repeat(feeds[name], 6 // count)[:, None, None] for name in "gb")
    want = (normal.reshape(feeds["x"].shape) * gamma + beta).astype("float32")
    check(one_node("GroupNormalization", feeds, opset=opset, num_groups=2), feeds, want=[want])


@pytest.mark.parametrize("opset", [14, 15])
def test_batch_norm_in_training(opset: int):
    feeds = {"x": drawn(2, 3, 4), **{name: np.abs(drawn(3, seed=n)) for n, name in enumerate("gbmv")}}
    model = one_node("BatchNormalization", feeds, 3, opset=opset, training_mode=1, momentum=0.7)
    check(model, feeds, want=by_reference(model, feeds))


def test_batch_norm_for_each_element():
    feeds = {"x": drawn(2, 3, 4), **{name: np.abs(drawn(3, 4, seed=n)) for n, name in enumerate("gbmv")}}
    x, g, b, m, v = feeds.values()
    want = (x - m) / np.sqrt(v + 1e-5) * g + b
    check(one_node("BatchNormalization", feeds, opset=7, spatial=0), feeds, want=[want], rtol=1e-4)


def test_norms_of_float16_are_computed_in_float32():
    x = drawn(2, 64, dtype="float16") * np.float16(300)
    feeds = {"x": x, "g": np.ones(64, "float16")}
    wide = x.astype("float64")
    want = (wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)).astype("float16")
    check(one_node("RMSNormalization", feeds, opset=23), feeds, want=[want], rtol=1e-3)


def test_groups_that_do_not_divide_the_channels_are_refused():
    feeds = {"x": drawn(2, 5, 3), "g": drawn(5), "b": drawn(5)}
    with pytest.raises(ModelError, match=r"5 channels are not known to be divisible by its 2 groups"):
        imported(one_node("GroupNormalization", feeds, opset=21, num_groups=2))
