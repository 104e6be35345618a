"""oneDNN declines primitives that lose NaN, but takes bounds behind products."""

from __future__ import annotations

import pytest
from relax_calls import constant
from tvm import relax
from tvm.relax import op
from tvm.target import Target

from unity_collage.backends.onednn.backend import ONEDNN
from unity_collage.graph import DataflowGraph
from unity_collage.rules import Declined, Found
from unity_collage.target import host_target

IMAGE, MATRIX = (1, 8, 8, 16), (32, 32)


def answers(
    make, *shapes: tuple[int, ...], dtype: str = "float32", target: Target | None = None
) -> list[Found | Declined]:
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(make(*params)))
        builder.emit_func_output(result)
    return list(ONEDNN.rule(target or host_target()).apply(DataflowGraph(builder.get()["main"])))


def relu_of_product(x: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.matmul(x, constant(*MATRIX)))


@pytest.mark.parametrize(
    ("make", "shapes", "reason"),
    [
        (op.nn.relu, [MATRIX], "oneDNN's eltwise relu turns NaN into a number"),
        (lambda x: op.clip(x, 0, 6), [MATRIX], "eltwise clip_v2 turns NaN"),
        (op.exp, [MATRIX], "eltwise exp turns NaN"),
        (op.nn.gelu, [MATRIX], "eltwise gelu_erf turns infinity into NaN"),
        (lambda x, y: op.nn.gelu(op.add(x, y)), [MATRIX, MATRIX], "gelu_erf behind binary turns infinity"),
        (op.maximum, [MATRIX, MATRIX], "binary max turns NaN"),
        (op.minimum, [MATRIX, MATRIX], "binary min turns NaN"),
        (op.greater, [MATRIX, MATRIX], "binary gt turns NaN"),
        (op.greater_equal, [MATRIX, MATRIX], "binary ge turns NaN"),
        (op.less, [(1, 32), MATRIX], "binary gt turns NaN"),
        (lambda x: op.max(x, 1), [MATRIX], "reduction max turns NaN"),
        (lambda x: op.max(x, 0), [MATRIX], "pooling max turns NaN"),
        (lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), [IMAGE], "pooling max turns NaN"),
        (lambda x: op.nn.softmax(x, 1), [MATRIX], "softmax accurate turns NaN"),
        (lambda x, y: op.nn.relu(op.add(x, y)), [MATRIX, MATRIX], "relu behind binary turns NaN"),
        (lambda x: op.exp(op.matmul(x, constant(*MATRIX))), [MATRIX], "exp behind matmul turns NaN"),
    ],
)
def test_what_loses_nan_is_declined(make, shapes, reason: str) -> None:
    declined = [answer.reason for answer in answers(make, *shapes) if isinstance(answer, Declined)]
    assert any(reason in found for found in declined), declined


@pytest.mark.parametrize(
    ("make", "nodes"),
    [
        (relu_of_product, 2),
        (lambda x: op.clip(op.matmul(x, constant(*MATRIX)), 0, 6), 2),
        (lambda x: op.nn.leakyrelu(x, 0.1), 1),
        (op.tanh, 1),
    ],
)
def test_what_keeps_nan_or_would_cost_too_much_is_taken(make, nodes: int) -> None:
    sizes = [answer.inside.bit_count() for answer in answers(make, MATRIX) if isinstance(answer, Found)]
    assert max(sizes) == nodes


def test_bfloat16_needs_a_processor_that_has_it() -> None:
    """oneDNN has not even a reference kernel for it elsewhere."""
    found = {
        cpu: answers(op.tanh, MATRIX, dtype="bfloat16", target=Target({"kind": "llvm", "mcpu": cpu}))
        for cpu in ("haswell", "skylake-avx512")
    }
    assert any(isinstance(answer, Found) for answer in found["skylake-avx512"])
    assert all(isinstance(answer, Declined) and "AVX-512" in answer.reason for answer in found["haswell"])
