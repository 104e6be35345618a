"""A model in bfloat16 from end to end: as the API and as the command line have it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.errors import CollageError
from unity_collage.profile.accuracy import deviation, deviations


def image_model() -> onnx.ModelProto:
    """Two convolutions with a residual, the average of the image, a product: 1 x 8 x 8 x 8 to 1 x 5."""
    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return numpy_helper.from_array((scale * rng.standard_normal(shape)).astype("float32"), name)

    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c1", "r0"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w2"], ["y"]),
    ]
    constants = [weights("w0", 8, 8, 3, 3), weights("b0", 8), weights("w1", 8, 8, 3, 3), weights("b1", 8)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 8, 8))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 5))]
    graph = helper.make_graph(nodes, "image", inputs, outputs, [*constants, weights("w2", 8, 5)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("costs") / "costs.sqlite"


@pytest.fixture(scope="module")
def program(costs: Path) -> uc.Program:
    return uc.compile(image_model(), database=costs, precision="bf16")


def test_results_are_float32_and_near_those_in_float32(program: uc.Program) -> None:
    (found,) = deviations(program, image_model())
    assert 0 < found.relative < 0.02 and found.largest < 0.02 and found.cosine > 0.9995
    assert program(np.ones((1, 8, 8, 8), "float32")).numpy().dtype == np.float32


def test_kernels_store_bfloat16(program: uc.Program) -> None:
    assert any("astype" in kernel.label for kernel in program.plan["main"].kernels)
    assert "bfloat16" in program.mod["main"].script()


def test_float32_is_the_default_and_is_not_narrowed(costs: Path) -> None:
    plain = uc.compile(image_model(), database=costs, backends=["onednn"])
    assert "bfloat16" not in plain.mod["main"].script()
    assert deviations(plain, image_model())[0].relative < 1e-5


def test_it_is_saved_and_loaded(program: uc.Program, tmp_path: Path) -> None:
    program.save(tmp_path / "narrow.so")
    x = np.linspace(-1, 1, 512, dtype="float32").reshape(1, 8, 8, 8)
    np.testing.assert_array_equal(uc.load(tmp_path / "narrow.so")(x).numpy(), program(x).numpy())


def test_a_precision_that_there_is_not() -> None:
    with pytest.raises(CollageError, match="there is no precision 'int3': use f32 or tf32 or bf16 or f16"):
        uc.compile(image_model(), precision="int3")


def test_the_command_line_tells_the_error(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, program: uc.Program, costs: Path
) -> None:
    onnx.save(image_model(), tmp_path / "m.onnx")
    assert (
        cli.main(["compile", str(tmp_path / "m.onnx"), "--precision", "bf16", "--database", str(costs)]) == 0
    )
    out, _ = capfd.readouterr()
    assert "bf16 against float32, random inputs: relative error" in out and re.search(
        r"cosine (0\.99|1\.00)", out
    )
    assert program.plan


def test_a_deviation_is_relative_to_the_reference() -> None:
    found = deviation(np.array([3.0, 4.5], "float32"), np.array([3.0, 4.0], "float32"))
    assert (found.largest, found.relative) == (0.125, 0.1)
    assert found.cosine == pytest.approx(27 / (5 * np.sqrt(29.25)))
    assert deviation(np.zeros(2), np.zeros(2)).relative == 0.0
    assert deviation(np.ones(2), np.zeros(2)).relative == np.inf
