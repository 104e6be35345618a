"""Operators of com.microsoft: the numbers of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_case import check, one_node, run

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx.importer import imported

B, S, H, D = 2, 5, 4, 16
"""Sequences, rows, heads and elements of a head."""


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def microsoft(op: str, inputs: dict[str, np.ndarray | None], outputs: Any = 1, **options: Any):
    given = dict(inputs)
    while list(given.values())[-1] is None:
        given.popitem()
    return one_node(op, given, outputs, domain="com.microsoft", **options), {
        name: array for name, array in given.items() if array is not None
    }


def heads(*names: str, rows: int = S) -> dict[str, np.ndarray]:
    return {name: drawn(B, rows, H * D, seed=n) for n, name in enumerate(names)}


MULTI_HEAD: dict[str, tuple[dict[str, np.ndarray | None], int, dict[str, Any]]] = {
    "plain": ({}, 1, {}),
    "scale, causal": ({}, 1, {"scale": 0.2, "unidirectional": 1}),
    "bias of inputs": ({"bias": drawn(3 * H * D, seed=3)}, 1, {}),
    "lengths": ({"mask": np.array([3, 5], "int32")}, 1, {}),
    "mask of keys": ({"mask": np.array([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1]], "int32")}, 1, {}),
    "bias of scores": ({"added": drawn(1, H, S, S, seed=4)}, 1, {}),
    "past": ({"pk": drawn(B, H, 3, D, seed=5), "pv": drawn(B, H, 3, D, seed=6)}, 3, {"unidirectional": 1}),
}


@pytest.mark.parametrize("dims", [None, ["b", "s", H * D]], ids=["fixed", "free"])
@pytest.mark.parametrize(("more", "outputs", "options"), MULTI_HEAD.values(), ids=MULTI_HEAD)
def test_multi_head_attention(more: dict[str, np.ndarray], outputs: int, options: dict[str, Any], dims: Any):
    order = ["bias", "mask", "added", "pk", "pv"]
    model, feeds = microsoft(
        "MultiHeadAttention", {**heads("q", "k", "v"), **{name: more.get(name) for name in order}}, outputs,
        num_heads=H, dims=None if dims is None else dict.fromkeys("qkv", dims), **options,
    )  # fmt: skip
    check(model, feeds, 1e-4)


@pytest.mark.parametrize("packed", ["qkv", "kv"])
def test_multi_head_attention_of_packed_operands(packed: str):
    if packed == "qkv":
        operands: dict[str, np.ndarray | None] = {"q": drawn(B, S, H, 3, D)}
    else:
        operands = {"q": drawn(B, S, H * D), "k": drawn(B, S + 1, H, 2, D, seed=1)}
    unpacked = {
        "qkv": lambda q: [q[:, :, :, n].reshape(B, S, -1) for n in range(3)],
        "kv": lambda q, k: [q, *(k[:, :, :, n].reshape(B, S + 1, -1) for n in range(2))],
    }[packed](*operands.values())
    plain, feeds = microsoft("MultiHeadAttention", dict(zip("qkv", unpacked, strict=True)), num_heads=H)
    want = run(plain, feeds)
    model, feeds = microsoft("MultiHeadAttention", operands, num_heads=H)
    check(model, feeds, want=want)


ATTENTION: dict[str, tuple[dict[str, np.ndarray | None], int, dict[str, Any]]] = {
    "plain": ({}, 1, {}),
    "causal, scaled": ({}, 1, {"unidirectional": 1, "scale": 0.3}),
    "lengths": ({"mask": np.array([2, 5], "int32")}, 1, {}),
    "ends and begins": ({"mask": np.array([4, 5, 1, 0], "int32")}, 1, {}),
    "mask of keys": ({"mask": np.array([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1]], "int32")}, 1, {}),
    "mask of rows": ({"mask": (drawn(B, S, S) > -0.5).astype("int32")}, 1, {}),
    "past": ({"past": drawn(2, B, H, 3, D, seed=5)}, 2, {"unidirectional": 1}),
    "widths": ({}, 1, {"qkv_hidden_sizes": [32, 32, 16]}),
}


@pytest.mark.parametrize(("more", "outputs", "options"), ATTENTION.values(), ids=ATTENTION)
def test_attention_with_weights(more: dict[str, np.ndarray], outputs: int, options: dict[str, Any]):
    width = sum(options.get("qkv_hidden_sizes", [3 * H * D]))
    operands = {"x": drawn(B, S, 12), "w": drawn(12, width, seed=1) / 3, "b": drawn(width, seed=2)}
    model, feeds = microsoft(
        "Attention", {**operands, "mask": more.get("mask"), "past": more.get("past")}, outputs,
        constant=["w", "b"], num_heads=H, **options,
    )  # fmt: skip
    check(model, feeds, 1e-4)


GROUPED: dict[str, tuple[int, int, dict[str, Any]]] = {
    "prompt": (S, 0, {}),
    "next token": (1, 6, {}),
    "several tokens, capped": (3, 6, {"softcap": 2.0}),
    "window": (S, 0, {"local_window_size": 3}),
    "turned": (1, 6, {"do_rotary": 1}),
    "turned prompt, neighbours": (S, 0, {"do_rotary": 1, "rotary_interleaved": 1}),
}


@pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])
@pytest.mark.parametrize(("rows", "past", "options"), GROUPED.values(), ids=GROUPED)
def test_group_query_attention(rows: int, past: int, options: dict[str, Any], packed: bool):
    shared, total = 2, past + rows
    parts = {
        "q": drawn(1, rows, H * D),
        "k": drawn(1, rows, shared * D, seed=1),
        "v": drawn(1, rows, shared * D, seed=2),
    }
    operands: dict[str, np.ndarray | None] = {**parts}
    if packed:
        operands = {"q": np.concatenate(list(parts.values()), -1), "k": None, "v": None}
    angles = drawn(16, D // 2, seed=3)
    operands |= {
        "past_k": drawn(1, shared, past, D, seed=4),
        "past_v": drawn(1, shared, past, D, seed=5),
        "last": np.array([total - 1], "int32"),
        "total": np.array(total, "int32"),
        "cos": np.cos(angles) if "do_rotary" in options else None,
        "sin": np.sin(angles) if "do_rotary" in options else None,
    }
    model, feeds = microsoft("GroupQueryAttention", operands, 3, num_heads=H, kv_num_heads=shared, **options)
    check(model, feeds, 1e-4)


@pytest.mark.parametrize("total", [3, "free"])
def test_the_first_prompt_has_one_position(total: Any) -> None:
    """ONNX Runtime turns its rows from the first position on, whatever the others are."""
    rows, shared, angles = 3, 2, drawn(16, D // 2, seed=3)
    operands: dict[str, np.ndarray | None] = {
        "q": drawn(B, rows, H * D),
        "k": drawn(B, rows, shared * D, seed=1),
        "v": drawn(B, rows, shared * D, seed=2),
        "past_k": drawn(B, shared, 0, D),
        "past_v": drawn(B, shared, 0, D),
        "last": np.array([2, 2], "int32"),
        "total": np.array(rows, "int32"),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "positions": np.array([[1, 1, 2], [0, 0, 1]], "int64"),
    }
    model, feeds = microsoft(
        "GroupQueryAttention", operands, 3, num_heads=H, kv_num_heads=shared, do_rotary=1,
        constant=["total"] if total == rows else [],
    )  # fmt: skip
    check(model, feeds, 1e-4)


@pytest.mark.parametrize("more", [{"causal": 0}, {"sliding_window_cache": 1, "local_window_size": 2}])
def test_an_attention_that_is_not_causal_is_refused(more: dict[str, int]) -> None:
    operands = {"q": drawn(1, S, H * D), "k": drawn(1, S, D, seed=1), "v": drawn(1, S, D, seed=2)}
    past = {"past_k": drawn(1, 1, 0, D), "past_v": drawn(1, 1, 0, D)}
    ends = {"last": np.array([S - 1], "int32"), "total": np.array(S, "int32")}
    model, _ = microsoft(
        "GroupQueryAttention", operands | past | ends, 3, num_heads=H, kv_num_heads=1, **more
    )
    with pytest.raises(ModelError, match="attention to later tokens and a cache of the size of its window"):
        imported(model)


def test_unique_values_are_in_the_order_in_which_they_occur() -> None:
    x = np.array([2, 1, 1, 3, 4, 3], "float32")
    model, feeds = microsoft("Unique", {"x": x}, ["y", "idx", "counts"])
    check(model, feeds)


@pytest.mark.parametrize(
    "positions",
    [np.array([2], "int64"), np.array(2, "int64"), np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]], "int64")],
)
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(positions: np.ndarray, interleaved: int):
    angles = drawn(16, D // 2, seed=3)
    operands = {"x": drawn(B, S, H * D), "p": positions, "cos": np.cos(angles), "sin": np.sin(angles)}
    check(*microsoft("RotaryEmbedding", operands, interleaved=interleaved))


def test_skip_layer_normalization():
    operands = {**heads("x", "s"), "g": drawn(H * D, seed=2), "b": drawn(H * D, seed=3)}
    operands["bias"] = drawn(H * D, seed=4)
    check(*microsoft("SkipLayerNormalization", operands, ["y", "", "", "sum"], epsilon=1e-5))
    del operands["b"], operands["bias"]
    check(*microsoft("SkipSimplifiedLayerNormalization", operands, ["y", "", "", "sum"]))


def test_simplified_layer_normalization_is_in_the_domain_of_the_standard():
    feeds = {"x": drawn(B, S, 16), "g": drawn(16, seed=1)}
    check(one_node("SimplifiedLayerNormalization", feeds, axis=-1, epsilon=1e-5), feeds)


@pytest.mark.parametrize("segments", [True, False])
def test_embed_layer_normalization(segments: bool):
    random = np.random.default_rng(0)
    operands: dict[str, np.ndarray | None] = {
        "ids": random.integers(0, 10, [B, S]).astype("int32"),
        "segments": random.integers(0, 2, [B, S]).astype("int32") if segments else None,
        "words": drawn(10, 8),
        "positions": drawn(6, 8, seed=1),
        "of_segments": drawn(2, 8, seed=2) if segments else None,
        "g": drawn(8, seed=3),
        "b": drawn(8, seed=4),
        "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "int32"),
    }
    check(*microsoft("EmbedLayerNormalization", operands, 2))


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        ([3, 4, 5], [3, 6, 5], {"transB": 1, "alpha": 0.5}),
        ([3, 5, 4], [3, 5, 6], {"transA": 1}),
        ([4, 3, 5], [6, 3, 5], {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    ],
)
def test_fused_matmul(a: list[int], b: list[int], options: dict[str, Any]):
    check(*microsoft("FusedMatMul", {"a": drawn(*a), "b": drawn(*b, seed=1)}, **options))


@pytest.mark.parametrize(
    "options", [{"activation": "Relu"}, {"activation": "LeakyRelu", "activation_params": [0.3]}, {}]
)
def test_fused_conv(options: dict[str, Any]):
    operands = {"x": drawn(1, 3, 6, 6), "w": drawn(4, 3, 3, 3, seed=1), "b": drawn(4, seed=2)}
    operands["z"] = drawn(1, 4, 6, 6, seed=3)
    check(*microsoft("FusedConv", operands, pads=[1] * 4, constant=["w", "b"], **options), atol=1e-4)


def test_fused_gemm():
    operands = {"a": drawn(3, 5), "b": drawn(4, 5, seed=1), "c": drawn(4, seed=2)}
    check(*microsoft("FusedGemm", operands, transB=1, activation="LeakyRelu", activation_alpha=0.2))


@pytest.mark.parametrize(
    ("bits", "points"), [(4, "none"), (4, "packed"), (4, "float"), (8, "none"), (8, "packed")]
)
def test_matmul_n_bits(bits: int, points: str):
    random, rows, columns, block = np.random.default_rng(0), 7, 48, 16
    blocks = columns // block
    packed = random.integers(0, 256, [rows, blocks, block * bits // 8]).astype("uint8")
    zero: dict[str, np.ndarray | None] = {
        "none": None,
        "packed": random.integers(0, 256, [rows, -(-blocks * bits // 8)]).astype("uint8"),
        "float": drawn(rows, blocks) + 7,
    }
    operands = {"x": drawn(2, 3, columns), "w": packed, "s": drawn(rows, blocks, seed=1), "z": zero[points]}
    model, feeds = microsoft(
        "MatMulNBits", operands, constant=["w", "s", *(["z"] if points != "none" else [])],
        K=columns, N=rows, bits=bits, block_size=block,
    )  # fmt: skip
    check(model, feeds, 1e-4, 1e-3)


def test_reordered_weights_are_refused():
    operands = {
        "x": drawn(2, 16), "w": np.zeros([3, 1, 8], "uint8"), "s": drawn(3, 1), "z": None,
        "g": np.arange(16, dtype="int32")[::-1].copy() % 1 + 1,
    }  # fmt: skip
    model, _ = microsoft("MatMulNBits", operands, constant=["w", "s", "g"], K=16, N=3, bits=4, block_size=16)
    with pytest.raises(ModelError, match=r"MatMulNBits 'node': .*\(g_idx\) are not supported"):
        imported(model)


def test_a_file_need_not_name_the_only_version() -> None:
    model, feeds = microsoft("QuickGelu", {"x": drawn(2, 3)}, alpha=1.5)
    named, _ = run(model, feeds), model.opset_import.pop()
    np.testing.assert_array_equal(run(model, feeds), named)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"bias": drawn(7)}, "its bias has 7 numbers"),
        ({"bias": None, "mask": np.ones((B, S + 1), "int32")}, "its mask has the shape"),
        ({"bias": None, "mask": np.ones(B + 1, "int32")}, "its mask has 3 numbers"),
    ],
)
def test_operands_of_attention_that_do_not_fit_are_refused(
    more: dict[str, np.ndarray | None], reason: str
) -> None:
    model, feeds = microsoft("MultiHeadAttention", heads("q", "k", "v") | more, num_heads=H)
    with pytest.raises(ModelError, match=reason):
        run(model, feeds)
