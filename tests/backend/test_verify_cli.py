"""``unity-collage compile --verify``: the results of a program against those of ONNX Runtime and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from said import errors_in

from unity_collage.cli import main as cli
from unity_collage.profile import agreement

Verified = Callable[..., tuple[int, list[str], list[str]]]

WEIGHTS = np.random.default_rng(0).standard_normal((16, 8), dtype="float32")


def layer(path: Path) -> Path:
    """``relu/0 = max(x @ w, 0)`` and ``largest = argmax(x @ w)``, for any number of rows."""

    def value(name: str, kind: int, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    nodes = [
        helper.make_node("MatMul", ["the input", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["relu/0"]),
        helper.make_node("ArgMax", ["product"], ["largest"], axis=1, keepdims=0),
    ]
    results = [value("relu/0", TensorProto.FLOAT, "rows", 8), value("largest", TensorProto.INT64, "rows")]
    inputs = [value("the input", TensorProto.FLOAT, "rows", 16)]
    graph = helper.make_graph(nodes, "layer", inputs, results, [numpy_helper.from_array(WEIGHTS, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("costs") / "costs.sqlite"


@pytest.fixture
def verified(tmp_path: Path, database: Path, capfd: pytest.CaptureFixture[str]) -> Verified:
    """Compile the layer and verify it: the exit code, the lines of the comparison, and errors."""

    def run(*arguments: object) -> tuple[int, list[str], list[str]]:
        pytest.importorskip("onnxruntime")
        model = layer(tmp_path / "layer.onnx")
        code = cli.main(list(map(str, ["compile", model, "--database", database, "--verify", *arguments])))
        out, err = capfd.readouterr()
        return code, [line for line in out.splitlines() if line.startswith("against ")], errors_in(err)

    return run


@pytest.mark.parametrize("rows", [1, 7, None])
def test_each_result_is_compared(verified: Verified, tmp_path: Path, rows: int | None) -> None:
    inputs: str | Path = "random"
    if rows is not None:
        inputs = tmp_path / "inputs.npz"
        np.savez(
            inputs, **{"the input": np.random.default_rng(1).standard_normal((rows, 16), dtype="float32")}
        )
    code, out, err = verified(inputs)
    assert (code, err) == (0, [])
    first, second = out
    assert first.startswith("against onnxruntime: 'relu/0': error ") and first.endswith(" of the range")
    assert second == "against onnxruntime: 'largest': error 0.0e+00 of the range"


def test_a_result_that_does_not_agree_is_an_error(
    verified: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(agreement.RuntimeProcess):
        def outputs(self) -> list[np.ndarray]:
            relu, largest = super().outputs()
            return [relu * np.float32(1.01), largest]

    monkeypatch.setattr(agreement, "RuntimeProcess", Wrong)
    code, out, err = verified("random")
    assert (code, err) == (1, ["unity-collage: 1 of 2 results differ from onnxruntime's"])
    assert out[0].endswith("of the range, is off by 9.9e-03 of its range (allowed 1e-03)")
    assert verified("random", "--tolerance", "0.02")[0] == 0


def test_inputs_that_the_model_does_not_take_are_an_error(verified: Verified, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", **{"the input": np.zeros((2, 16))})
    code, out, err = verified(tmp_path / "inputs.npz")
    assert (code, out, len(err)) == (1, [], 1)
    assert err[0].startswith(
        "unity-collage: input 'the input' takes float32 (rows, 16); float64 (2, 16) was given"
    )


def test_a_program_of_pytorch_is_compared_with_pytorch(
    tmp_path: Path, database: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")

    class Layer(torch.nn.Module):
        def forward(self, x, pair, scale: float = 2.0):
            return x * scale - pair[0], torch.argmax(pair[1], 1)

    x = torch.ones(2, 8)
    torch.export.save(torch.export.export(Layer(), (x, (x * 3, x + 1), 2.0)), tmp_path / "layer.pt2")
    path = str(tmp_path / "layer.pt2")
    code = cli.main(["compile", path, "--database", str(database), "--verify", "random"])
    out, err = capfd.readouterr()
    assert (code, errors_in(err)) == (0, [])
    assert len([line for line in out.splitlines() if line.startswith("against torch-eager: ")]) == 2


def test_the_reference_does_not_round_products_with_weights_of_bytes(tmp_path: Path) -> None:
    """ONNX Runtime's own settings do, so right programs differed from it by half a percent."""
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    weights, scale = rng.integers(-127, 128, (256, 256), np.int8), np.full(256, 0.01, np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 256]) for name in "xy")
    constants = [numpy_helper.from_array(weights, "q"), numpy_helper.from_array(scale, "s")]
    graph = helper.make_graph(nodes, "bytes", [x], [y], constants)
    path = tmp_path / "bytes.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    given = rng.standard_normal((8, 256), dtype=np.float32)
    (found,) = agreement.reference_results(path, {"x": given})
    right = given @ (weights * scale)
    assert np.abs(found - right).max() < 1e-5 * np.abs(right).max()
