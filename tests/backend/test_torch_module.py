"""ONNX operators by torch: the numbers of ONNX Runtime, and one line where there is no function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from torch_cases import CASES, IMAGE, NUMBERS, REFUSALS, ROWS, WINDOWS, draw, ints, model

from unity_collage.errors import ModelError
from unity_collage.profile.peers.runtime_process import RuntimeMissing, RuntimeProcess

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch_peer.module import graph_module  # noqa: E402  it imports torch
from torch_peer.runtime import FOLDER, RUNNER, TORCH_COMPILE  # noqa: E402


def agrees(made: onnx.ModelProto, x: np.ndarray) -> None:
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {"x": x})
    with torch.no_grad():
        got = [value.numpy() for value in graph_module(made, {"x": x})(torch.from_numpy(x))]
    for left, right in zip(got, want, strict=True):
        assert left.shape == right.shape and left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_an_operator_has_the_numbers_of_onnx_runtime(case: str) -> None:
    agrees(CASES[case].model(), CASES[case].x)


def test_what_is_computed_from_shapes_and_constants_is_known_beforehand() -> None:
    """ConstantOfShape, Equal, Where and Expand of a class token; a shape put together for a Reshape."""
    steps = (
        ("Shape", ["x"], "shape", {}),
        ("Gather", ["shape", "zero"], "batch", {}),
        ("Concat", ["batch", "two"], "target", {"axis": 0}),
        ("Constant", [], "ones", {"value_ints": [1, 1]}),
        ("ConstantOfShape", ["rank"], "fill", {"value": numpy_helper.from_array(ints(-1))}),
        ("Equal", ["target", "fill"], "is_free", {}),
        ("Where", ["is_free", "ones", "target"], "extents", {}),
        ("Expand", ["token", "extents"], "tokens", {}),
        ("Reshape", ["x", "target"], "flat", {}),
        ("Concat", ["tokens", "flat"], "y", {"axis": 1}),
    )
    nodes = [helper.make_node(op, sources, [output], **options) for op, sources, output, options in steps]
    constants = {"zero": ints(0), "two": ints(12), "rank": ints(2), "token": draw(1, 1)}
    made, x = model(nodes, draw(2, 3, 4), ["y", "tokens"], constants), draw(2, 3, 4)
    agrees(made, x)
    recorded = [node.target for node in graph_module(made, {"x": x}).graph.nodes if "call" in node.op]
    assert recorded == ["reshape", torch.cat]


def test_a_number_is_no_tensor_where_it_may_be_one() -> None:
    case = NUMBERS["divide"]
    recorded = graph_module(case.model(), {"x": case.x})
    assert [node.args[1] for node in recorded.graph.nodes if node.op == "call_function"] == [2.5]
    assert not list(recorded.buffers())


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_names_the_operator(refusal: str) -> None:
    case, reason = REFUSALS[refusal]
    with pytest.raises(ModelError) as raised:
        graph_module(case.model(), {"x": case.x})
    assert reason in str(raised.value)


def test_an_output_that_no_function_returns_is_named() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2, 2]),
        helper.make_node("Identity", ["where"], ["z"], name="reader"),
    ]
    with pytest.raises(ModelError, match="no torch function returns where, which node reader takes"):
        graph_module(model(nodes, IMAGE, ["y", "z"], {}), {"x": IMAGE})


def test_torch_compile_runs_as_a_peer(tmp_path: Path) -> None:
    case = WINDOWS["average, uneven, include 0, rounded up 1"]
    made = case.model()
    onnx.save(made, tmp_path / "m.onnx")
    with RuntimeProcess(TORCH_COMPILE, tmp_path / "m.onnx", {"x": case.x}, 1, RUNNER, [FOLDER]) as process:
        got, runs = process.outputs()[0], process.timed(0.0)
    with torch.no_grad():
        want = graph_module(made, {"x": case.x})(torch.from_numpy(case.x))[0].numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert len(runs) == 3


def test_a_peer_that_lacks_an_operator_is_missing_by_its_name(tmp_path: Path) -> None:
    onnx.save(REFUSALS["no operator"][0].model(), tmp_path / "m.onnx")
    with pytest.raises(
        RuntimeMissing, match=r"torch-compile: ModelError: no torch function .* Celu \(node node\)"
    ):
        RuntimeProcess(TORCH_COMPILE, tmp_path / "m.onnx", {"x": ROWS}, 1, RUNNER, [FOLDER])
