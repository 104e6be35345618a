"""Attention and RotaryEmbedding of ONNX with symbolic sizes and masks of every form, against onnx's own evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_case import by_reference, check, one_node, run
from tvm import relax

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx.importer import imported

B, H, S, T, D = 2, 4, 3, 5, 8


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def operands(shared: int = H, past: int = 0, **more: np.ndarray) -> dict[str, np.ndarray | None]:
    """Queries, keys and values with heads, and other operands at their places."""
    given: dict[str, np.ndarray | None] = {
        "q": drawn(B, H, S, D),
        "k": drawn(B, shared, T, D, seed=1),
        "v": drawn(B, shared, T, D, seed=2),
        "mask": more.get("mask"),
        "pk": drawn(B, shared, past, D, seed=3) if past else None,
        "pv": drawn(B, shared, past, D, seed=4) if past else None,
        "lengths": more.get("lengths"),
    }
    while list(given.values())[-1] is None:
        given.popitem()
    return given


FREE = {
    "q": ["b", H, "s", D],
    "k": ["b", "h", "t", D],
    "v": ["b", "h", "t", D],
    "pk": ["b", "h", "p", D],
    "pv": ["b", "h", "p", D],
    "mask": ["s", "m"],
    "lengths": ["b"],
}
_HIDDEN = np.where(drawn(S, T) > 0, 0, -np.inf).astype("float32")

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "causal": ({}, {"is_causal": 1}),
    "causal with past": ({"past": 2}, {"is_causal": 1}),
    "shared heads, causal with past": ({"past": 2, "shared": 2}, {"is_causal": 1, "softcap": 3.0}),
    "bools": ({"mask": drawn(S, T) > -0.5, "shared": 2}, {}),
    "numbers that hide rows": ({"mask": _HIDDEN}, {"is_causal": 1}),
    "lengths": ({"lengths": np.array([2, 5])}, {}),
    "lengths, causal": ({"lengths": np.array([2, 5]), "shared": 2}, {"is_causal": 1}),
    "window": ({"past": 2}, {"left_window_size": 2, "right_window_size": 1}),
}


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize(("more", "options"), CASES.values(), ids=CASES)
def test_attention(more: dict[str, Any], options: dict[str, Any], free: bool):
    given = operands(**more)
    feeds = {name: array for name, array in given.items() if array is not None}
    count = 3 if "pk" in feeds else 1
    dims = {name: [d if d != "h" else feeds["k"].shape[1] for d in dims] for name, dims in FREE.items()}
    opset = 27 if "left_window_size" in options else 24
    model = one_node("Attention", given, count, opset=opset, dims=dims if free else None, **options)
    check(model, feeds, want=by_reference(model, feeds)[:count])


@pytest.mark.parametrize("mode", range(4))
def test_scores_are_a_result(mode: int):
    given = operands(mask=_HIDDEN, shared=2)
    feeds = {name: array for name, array in given.items() if array is not None}
    model = one_node("Attention", given, ["y", "", "", "scores"], opset=24, qk_matmul_output_mode=mode)
    check(model, feeds, want=by_reference(model, feeds)[:: 1 if len(by_reference(model, feeds)) == 2 else 3])


def test_a_mask_that_is_known_and_hides_no_row_leaves_no_test_behind():
    given = operands(mask=np.where(drawn(S, T) > 5, -np.inf, 0).astype("float32"))
    model = one_node("Attention", given, opset=24, constant=["mask"], is_causal=1)
    found = []
    relax.analysis.post_order_visit(
        imported(model)[0]["main"],
        lambda e: found.append(e.op.name) if isinstance(e, relax.Call) and hasattr(e.op, "name") else None,
    )
    assert found == [
        "relax.permute_dims", "relax.matmul", "relax.multiply", "relax.add", "relax.nn.softmax", "relax.matmul"
    ]  # fmt: skip


def test_softmax_may_be_more_precise():
    given = operands()
    feeds = {name: array for name, array in given.items() if array is not None}
    model = one_node("Attention", given, opset=24, softmax_precision=11)
    check(model, feeds, want=by_reference(model, feeds)[:1])


@pytest.mark.parametrize("flat", [False, True], ids=["heads", "flat"])
@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int, width: int, flat: bool):
    angles = drawn(9, (width or D) // 2, seed=1)
    feeds = {
        "x": drawn(B, S, H * D) if flat else drawn(B, H, S, D),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "p": np.array([[0, 1, 2], [6, 7, 8]]),
    }
    dims = {"x": ["b", "s", H * D] if flat else ["b", H, "s", D], "p": ["b", "s"]}
    options = {"interleaved": interleaved, "rotary_embedding_dim": width} | ({"num_heads": H} if flat else {})
    model = one_node("RotaryEmbedding", feeds, opset=23, dims=dims, **options)
    check(model, feeds, want=by_reference(model, feeds))


def test_large_scores_of_float16_do_not_overflow():
    given = {name: np.full([1, 1, 2, 64], 100, "float16") for name in "qkv"}
    assert run(one_node("Attention", given, opset=23), given)[0].reshape(-1)[0] == 100


@pytest.mark.parametrize(
    ("given", "options", "reason"),
    [
        (
            operands(past=2, lengths=np.array([1, 2])),
            {},
            "nonpad_kv_seqlen is not defined together with past_key",
        ),
        (
            {"q": drawn(B, S, H * D), "k": drawn(B, T, H * D), "v": drawn(B, T, H * D)},
            {},
            "no attribute q_num_heads",
        ),
        (operands(shared=3), {}, "4 heads of queries are not known to share 3 heads of keys"),
    ],
)
def test_what_is_not_defined_is_refused(given: Any, options: dict[str, Any], reason: str):
    with pytest.raises(ModelError, match=f"^Attention 'node': .*{reason}"):
        imported(one_node("Attention", given, opset=24, **options))
