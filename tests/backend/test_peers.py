"""Runtimes that convert a model compute what ONNX Runtime computes, or say what they cannot convert."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unity_collage.profile.peers.runtime_process import RuntimeMissing, RuntimeProcess

PACKAGES = {"mnn": ["MNN"], "ncnn": ["ncnn", "pnnx"]}


def saved(path: Path, *nodes: onnx.NodeProto) -> Path:
    """A model of two images, whose second input is named first in its nodes, and two results."""
    rng = np.random.default_rng(0)
    weights = numpy_helper.from_array(rng.standard_normal((16, 16, 3, 3)).astype("float32"), "w")
    ins, outs = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 16, 12, 12)) for name in names]
        for names in (("a", "b"), ("y", "z"))
    ]
    graph = helper.make_graph(nodes, "small", ins, outs, [weights])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own.ops", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize("name", PACKAGES)
def test_a_model_is_converted_with_its_numbers_or_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    for package in PACKAGES[name]:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    nodes = [
        helper.make_node("Sub", ["b", "a"], ["d"]),
        helper.make_node("Conv", ["d", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["z"]),
        helper.make_node("Neg", ["a"], ["y"]),
    ]
    model = saved(tmp_path / "model.onnx", *nodes)
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal((1, 16, 12, 12)).astype("float32") for name in "ab"}
    with RuntimeProcess("onnxruntime", model, feeds, 2) as reference:
        expected = reference.outputs()
    with RuntimeProcess(name, model, feeds, 2) as process:
        assert process.timed(0.01)
        process.check(expected)  # after other runs: a session of MNN overwrites its inputs

    nodes[-1] = helper.make_node("Foo", ["a"], ["y"], domain="own.ops")
    foreign = saved(tmp_path / "foreign.onnx", *nodes)
    with pytest.raises(RuntimeMissing, match=f"^{name}: ModelError: not converted: .*Foo.*$"):
        RuntimeProcess(name, foreign, feeds, 2)
