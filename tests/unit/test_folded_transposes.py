"""Models are written with channels first all the way, also those of functions with channels last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

from unity_collage.passes.channels_last import ChannelsLast
from unity_collage.passes.prepare import Prepare
from unity_collage.testing.conformance.cases import bound, function, weights
from unity_collage.to_onnx import exported
from unity_collage.to_onnx.transposes import with_folded_transposes

RNG = np.random.default_rng(0)


def network(x: relax.Expr) -> relax.Expr:
    """Two convolutions with a residual between, a gate, a pool, a concatenation and a classifier."""
    first = bound(R.nn.relu(R.add(R.nn.conv2d(x, weights(8, 3, 3, 3), padding=1), weights(1, 8, 1, 1))))
    second = bound(R.nn.conv2d(first, weights(8, 8, 3, 3), padding=1))
    joined = bound(R.nn.relu(R.add(second, first)))
    gate = R.sigmoid(R.nn.conv2d(R.mean(joined, [2, 3], keepdims=True), weights(8, 8, 1, 1)))
    both = R.concat([R.multiply(joined, gate), R.clip(second, 0, 6)], axis=1)
    pooled = R.nn.max_pool2d(both, (2, 2), strides=(2, 2))
    return R.matmul(R.mean(pooled, [2, 3]), weights(16, 5))


def test_channels_last_is_written_as_channels_first() -> None:
    func = function(network, [(1, 3, 8, 8)])
    with tvm.target.Target("llvm"):
        mod = tvm.transform.Sequential([Prepare(), ChannelsLast()])(IRModule({"main": func}))
    last = exported(mod["main"])
    ops = Counter(node.op_type for node in last.graph.node)
    assert "permute_dims" in mod.script()
    assert ops["Transpose"] == 0
    assert ops["Conv"] == 3
    image = RNG.standard_normal((1, 3, 8, 8), dtype=np.float32)
    ((right,), (found,)) = (
        ReferenceEvaluator(each).run(None, {"x0": image}) for each in (exported(func), last)
    )
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


def test_only_the_border_of_a_channels_last_region_has_transposes() -> None:
    def conv(x: relax.Expr) -> relax.Expr:
        return R.nn.conv2d(x, weights(4, 3, 3, 4), padding=1, data_layout="NHWC", kernel_layout="OHWI")

    model = exported(function(lambda x: conv(R.nn.relu(R.add(conv(x), x))), [(1, 6, 6, 4)]))
    ops = [node.op_type for node in model.graph.node]
    assert ops == ["Transpose", "Conv", "Add", "Relu", "Conv", "Transpose", "Identity"]


def _ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def _graph(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], rank_out: int = 4
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank_out)
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "folded", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


BEHIND: dict[str, tuple[Callable[[], list[onnx.NodeProto]], dict[str, Any], int]] = {
    "a vector": (lambda: [helper.make_node("Mul", ["t", "c"], ["z"])], {"c": np.arange(3, dtype=np.float32)}, 4),
    "a vector first": (lambda: [helper.make_node("Sub", ["c", "t"], ["z"])], {"c": np.ones((5, 1), np.float32)}, 4),
    "a scalar": (lambda: [helper.make_node("Pow", ["t", "c"], ["z"])], {"c": np.float32(2)}, 4),
    "itself": (lambda: [helper.make_node("Add", ["t", "t"], ["z"])], {}, 4),
    "softmax": (lambda: [helper.make_node("Softmax", ["t"], ["z"], axis=-1)], {}, 4),
    "concat": (lambda: [helper.make_node("Concat", ["t", "t"], ["z"], axis=3)], {}, 4),
    "concat with a constant": (
        lambda: [helper.make_node("Concat", ["t", "c"], ["z"], axis=-1)],
        {"c": np.ones((2, 4, 5, 2), np.float32)},
        4,
    ),
    "sum": (lambda: [helper.make_node("ReduceSum", ["t", "a"], ["z"], keepdims=1)], {"a": ints(1, -1)}, 4),
    "sum that drops axes": (lambda: [helper.make_node("ReduceMax", ["t", "a"], ["z"], keepdims=0)], {"a": ints(1)}, 3),
    "pad": (lambda: [helper.make_node("Pad", ["t", "a"], ["z"])], {"a": ints(0, 1, 2, 0, 0, 0, 1, 3)}, 4),
    "slice": (
        lambda: [helper.make_node("Slice", ["t", "b", "e", "a", "s"], ["z"])],
        {"b": ints(1, 0), "e": ints(3, 5), "a": ints(-1, 2), "s": ints(1, 2)},
        4,
    ),
    "split": (
        lambda: [
            helper.make_node("Split", ["t", "a"], ["z1", "z2"], axis=2),
            helper.make_node("Concat", ["z2", "z1"], ["z"], axis=2),
        ],
        {"a": ints(2, 3)},
        4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BEHIND)
def test_a_transpose_moves_down(case: str) -> None:
    make, constants, rank = BEHIND[case]
    back = {4: [0, 3, 1, 2], 3: [0, 1, 2]}[rank]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]),
        *make(),
        helper.make_node("Transpose", ["z"], ["u"], perm=back),
        helper.make_node("Identity", ["u"], ["y"]),
    ]
    model = _graph(nodes, constants, rank)
    folded = with_folded_transposes(model)
    onnx.checker.check_model(folded, full_check=True)
    assert _ops(folded).count("Transpose") == (1 if rank == 3 else 0)
    x = RNG.standard_normal((2, 3, 4, 5), dtype=np.float32)
    ((right,), (found,)) = (ReferenceEvaluator(each).run(None, {"x": x}) for each in (model, folded))
    np.testing.assert_allclose(found, right, rtol=1e-6)


def test_what_needs_the_order_of_axes_gets_it_once() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["m"]),
        helper.make_node("MatMul", ["r", "c"], ["n"]),
        helper.make_node("Add", ["m", "n"], ["y"]),
    ]
    model = _graph(nodes, {"c": np.ones((3, 2), np.float32)})
    folded = with_folded_transposes(model)
    assert _ops(folded) == ["Relu", "Transpose", "MatMul", "MatMul", "Add"]
    x = RNG.standard_normal((2, 3, 4, 5), dtype=np.float32)
    ((right,), (found,)) = (ReferenceEvaluator(each).run(None, {"x": x}) for each in (model, folded))
    np.testing.assert_allclose(found, right, rtol=1e-6)


def test_a_model_without_transposes_is_left_alone() -> None:
    model = _graph([helper.make_node("Relu", ["x"], ["y"])], {})
    assert with_folded_transposes(model) is model
