"""Which calls ONNX Runtime and OpenVINO are asked for in regions, and where their regions are cut."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.script import relax as R

from unity_collage.backends.runtimes.backend import is_better_elsewhere, why_not_onnxruntime, why_not_openvino
from unity_collage.graph import DataflowGraph
from unity_collage.testing.conformance.cases import function, weights

Body = Callable[..., relax.Expr]


def call(body: Body, *shapes: tuple[int, ...], dtype: str = "float32") -> relax.Call:
    """The last call of a function."""
    found = DataflowGraph(function(body, shapes, dtype)).nodes[-1].call
    assert found is not None
    return found


INDEX = relax.const(np.array([2, 0], np.int64))


@pytest.mark.parametrize(
    ("subject", "theirs", "other"),
    [
        (call(R.nn.relu, (3, 5)), None, None),
        (call(lambda x: R.flip(x, axis=1), (3, 5)), "flip has no counterpart", "flip has no counterpart"),
        (call(R.nn.relu, (0, 5)), "no elements", "no elements"),
        (call(R.nn.relu, (3,), dtype="bfloat16"), "few kernels for bfloat16", None),
        (call(R.exp, (3,), dtype="float64"), None, "float64 in float32"),
        (call(R.add, (3,), (3,), dtype="int64"), None, "int64 in 32 bits"),
        (call(R.add, (3,), (3,), dtype="int8"), None, "sums of int8"),
        (call(R.add, (3,), (3,), dtype="int32"), None, None),
        (call(R.divide, (3,), (3,), dtype="int32"), "divided by 0", "divide of int32 in float32"),
        (
            call(lambda x: R.divide(x, relax.const(3, "int32")), (3,), dtype="int32"),
            None,
            "divide of int32 in float32",
        ),
        (call(R.less, (3,), (3,), dtype="int32"), None, "less of int32 in float32"),
        (call(R.nn.relu, (3,), dtype="int32"), None, "nn.relu of int32 in float32"),
        (call(lambda x: R.astype(x, "float32"), (3,), dtype="int32"), None, None),
        (call(lambda x: R.max(x, axis=1), (3, 5)), "lose NaN", "lose NaN and infinity"),
        (call(lambda x: R.argmax(x, axis=1), (3, 5)), "lose NaN", "lose NaN and infinity"),
        (call(lambda x: R.argmin(x, axis=1), (3, 5)), "lose NaN", "lose NaN and infinity"),
        (call(R.nn.max_pool2d, (1, 2, 4, 4)), "lose NaN", None),
        (call(R.maximum, (3,), (3,), dtype="int16"), "few kernels for int16", "sums of int16"),
        (call(R.isnan, (3, 5)), None, "asks for it"),
        (call(R.isinf, (3, 5), dtype="float16"), "float32 and float64", "asks for it"),
        (call(lambda x: R.astype(x, "bfloat16"), (3,)), "few kernels for bfloat16", "nearest bfloat16"),
        (call(R.zeros_like, (3,)), "does not read", "does not read"),
        (
            call(lambda x: R.nn.avg_pool2d(x, (2, 2), padding=(2, 2)), (1, 2, 4, 4)),
            "padding alone",
            "padding alone",
        ),
        (call(lambda x: R.take(x, INDEX, axis=0), (4, 2)), None, None),
        (call(lambda x: R.take(x, INDEX, axis=0), (4, 2), dtype="int64"), None, "int64 in 32 bits"),
        (call(lambda x: R.astype(x, "int64"), (4, 2)), None, "int64 in 32 bits"),
        (
            call(lambda x, y: R.concat([x, y], axis=0), (4,), (2,), dtype="float64"),
            None,
            "float64 in float32",
        ),
    ],
)
def test_refusals(subject: relax.Call, theirs: str | None, other: str | None) -> None:
    for why_not, expected in ((why_not_onnxruntime, theirs), (why_not_openvino, other)):
        reason = why_not(subject)
        assert reason is None if expected is None else reason is not None and expected in reason


def conv(shape: tuple[int, ...], inputs: int, **attrs: object) -> relax.Call:
    return call(lambda x: R.nn.conv2d(x, weights(*shape), **attrs), (1, inputs, 9, 9))  # pyright: ignore


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (conv((16, 16, 3, 3), 16), True),
        (conv((16, 16, 3, 3), 16, strides=2), False),
        (conv((16, 16, 1, 1), 16), False),
        (conv((16, 3, 3, 3), 3), False),
        (conv((8, 4, 3, 3), 16, groups=4), True),
        (conv((16, 1, 3, 3), 16, groups=16), False),
        (call(lambda x: R.nn.attention(x, x, x), (1, 4, 2, 8)), True),
        (call(R.matmul, (4, 4), (4, 4)), False),
    ],
)
def test_where_regions_are_cut(subject: relax.Call, expected: bool) -> None:
    assert is_better_elsewhere(subject) is expected
