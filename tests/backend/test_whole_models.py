"""Inference runtimes that take whole models: their sessions, and their programs against ours."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm_ffi
from onnx import TensorProto, helper, numpy_helper
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.errors import CollageError, ModelError
from unity_collage.feedback import Refinement, comparison
from unity_collage.feedback.whole_models import entrants_of, runtimes_among
from unity_collage.frontend.models import import_model
from unity_collage.lowering.live_memory import weights_nbytes
from unity_collage.sessions import RUNTIMES, SessionModel, WholeModel, session_module
from unity_collage.testing import graphs
from unity_collage.testing.conformance.cases import function

QUICK = Refinement(rounds=3, round_seconds=0.002, stock=False)
RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((8, 8), dtype=np.float32)


READ_ONNX = [name for name, found in RUNTIMES.items() if found.convert is None]


@pytest.fixture(params=list(RUNTIMES))
def runtime(request: pytest.FixtureRequest) -> str:
    """Each runtime that is installed."""
    if reason := RUNTIMES[request.param].why_unavailable():
        pytest.skip(reason)
    return request.param


@pytest.fixture
def reads_onnx(runtime: str) -> None:
    """Skips a runtime with a format and limits of its own: test_mnn.py has those."""
    if runtime not in READ_ONNX:
        pytest.skip(f"{runtime} does not read ONNX models")


def _model(
    rows: int | str = 4, epsilon: float = 0.0, activation: str = "Relu", scale: float = 1.0
) -> onnx.ModelProto:
    """``relu(x @ (scale * WEIGHT) + bias)``, whose bias is an input too, as old files have it."""
    bias = np.full(8, epsilon, np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8])
    b = helper.make_tensor_value_info("b", TensorProto.FLOAT, [8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 8])
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Add", ["p", "b"], ["s"]),
            helper.make_node(activation, ["s"], ["y"]),
        ],
        "whole",
        [x, b],
        [y],
        [numpy_helper.from_array(np.float32(scale) * WEIGHT, "w"), numpy_helper.from_array(bias, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _nonzero() -> onnx.ModelProto:
    """A result whose size depends on the data."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [1, None])
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "nonzero", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHT, 0)


def test_a_named_runtime_makes_the_program(runtime, tmp_path) -> None:
    program = uc.compile(_model(), backends=runtime, database=tmp_path / "costs.sqlite")
    x = RNG.standard_normal((4, 8), dtype=np.float32)
    np.testing.assert_allclose(program(x).numpy(), _expected(x), rtol=1e-5)
    assert [kernel.backend for kernel in program.plan["main"].kernels] == [runtime]
    assert program.memory.runtimes == (RUNTIMES[runtime].title,)
    np.testing.assert_allclose(program(x + 1).numpy(), _expected(x + 1), rtol=1e-4, atol=1e-5)


def test_a_runtime_alone_that_cannot_run_a_model_is_an_error_of_the_compile(
    runtime, tmp_path, monkeypatch
) -> None:
    broken = replace(import_model(_model()).whole, onnx=lambda: b"not a model")
    _give_runtimes(broken, monkeypatch)
    with pytest.raises(CollageError, match=f"no named runtime runs the model: {RUNTIMES[runtime].title}"):
        uc.compile(_model(), backends=runtime, database=tmp_path / "costs.sqlite")


def test_the_faster_of_two_named_runtimes_makes_the_program(tmp_path) -> None:
    if reasons := [reason for name in READ_ONNX if (reason := RUNTIMES[name].why_unavailable())]:
        pytest.skip(f"{reasons[0]}")
    model = _model(activation="Neg")
    program = uc.compile(model, backends=READ_ONNX, database=tmp_path / "costs.sqlite", refine=QUICK)
    plan = program.plan["main"]
    seconds = {each.name: each.seconds for each in plan.comparison.programs}
    assert len(seconds) == len(READ_ONNX) and all(seconds.values())
    assert plan.comparison.winner == f"{plan.kernels[0].backend}, the whole model"
    x = RNG.standard_normal((4, 8), dtype=np.float32)
    np.testing.assert_allclose(program(x).numpy(), -(x @ WEIGHT), rtol=1e-4, atol=1e-5)


def test_the_first_runtime_that_takes_a_model_makes_the_program_without_measuring(monkeypatch) -> None:
    if reasons := [reason for name in READ_ONNX if (reason := RUNTIMES[name].why_unavailable())]:
        pytest.skip(f"{reasons[0]}")
    whole = import_model(_model()).whole

    def refuses_then_writes() -> bytes:
        asked.append(None)
        if len(asked) == 1:
            raise ModelError("it is too large")
        return whole.onnx()

    asked: list[None] = []
    _give_runtimes(replace(whole, onnx=refuses_then_writes), monkeypatch)
    plan = uc.compile(_model(), backends=["openvino", "onnxruntime"], measure=False).plan["main"]
    assert [kernel.backend for kernel in plan.kernels] == ["onnxruntime"]
    assert "OpenVINO was left out: it is too large" in plan.remarks
    refused = replace(whole, onnx=lambda: _raises(ModelError("it is too large")))
    _give_runtimes(refused, monkeypatch)
    with pytest.raises(CollageError, match=r"no named runtime runs the model: OpenVINO .* too large; ONNX"):
        uc.compile(_model(), backends=["openvino", "onnxruntime"], measure=False)


def _raises(error: Exception) -> bytes:
    raise error


@pytest.mark.usefixtures("reads_onnx")
def test_sizes_may_be_open(runtime, tmp_path) -> None:
    program = uc.compile(_model("rows"), backends=runtime, database=tmp_path / "costs.sqlite")
    for rows in (1, 5, 0, 5):
        x = RNG.standard_normal((rows, 8), dtype=np.float32)
        np.testing.assert_allclose(program(x).numpy(), _expected(x), rtol=1e-5, atol=1e-6)


def test_a_saved_program_runs_elsewhere_and_says_what_it_needs(runtime, tmp_path, capsys) -> None:
    path = tmp_path / "program.so"
    uc.compile(_model(), backends=runtime, database=tmp_path / "costs.sqlite").save(path)
    script = f"""
import numpy as np, sys
import unity_collage as uc
program = uc.load({str(path)!r})
print(float(program(np.ones((4, 8), np.float32)).numpy().sum()), "onnx" in sys.modules)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    total, has_onnx = said.split()
    assert float(total) == pytest.approx(float(_expected(np.ones((4, 8), np.float32)).sum()), rel=1e-5)
    assert has_onnx == "False"
    assert cli.main(["info", str(path)]) == 0
    assert runtime in capsys.readouterr().out


def test_a_runtime_that_makes_numbers_of_nan_is_not_chosen(tmp_path, monkeypatch) -> None:
    if reason := RUNTIMES["openvino"].why_unavailable():
        pytest.skip(reason)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])
    # None of our kernels for it loses NaN, unlike oneDNN's products with a Relu behind them.
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    # As if OpenVINO's program were the fastest: only then it is asked.
    monkeypatch.setattr(comparison, "HOPELESS", math.inf)
    monkeypatch.setattr(comparison.Comparison, "_sure", lambda _, medians: medians)
    monkeypatch.setattr(
        comparison, "winner_of", lambda medians, _: max(medians, key=lambda name: "openvino" in name)
    )
    program = uc.compile(model, database=tmp_path / "costs.sqlite", refine=QUICK)
    reasons = {each.name: each.reason for each in program.plan["main"].comparison.programs}
    assert "makes numbers of NaN" in reasons["openvino, the whole model"]
    assert not np.isfinite(program(np.full((4, 8), np.nan, np.float32)).numpy()).any()


def test_whole_models_take_part_in_the_comparison(runtime, tmp_path) -> None:
    database = tmp_path / "costs.sqlite"
    backends = ["kernels", "tvm", runtime]
    model = _model(activation="Neg")
    program = uc.compile(model, backends=backends, database=database, refine=QUICK)
    report = program.plan["main"].comparison
    name = f"{runtime}, the whole model"
    (theirs,) = [each for each in report.programs if each.name == name]
    assert theirs.seconds and not theirs.reason
    again = uc.compile(model, backends=backends, database=database, refine=QUICK, locked=True)
    assert again.plan["main"].comparison.origin == "database"
    assert again.plan["main"].comparison.winner == report.winner


def test_a_program_without_room_in_memory_is_not_built(runtime, tmp_path, monkeypatch) -> None:
    weights = weights_nbytes(import_model(_model()).mod)
    monkeypatch.setattr("unity_collage.feedback.room.available_bytes", lambda: 5 * weights)
    options = {"database": tmp_path / "costs.sqlite", "recompile": True}
    programs = {each.name: each for each in uc.compile(_model(), **options).plan["main"].comparison.programs}
    assert programs["collage"].seconds
    assert "not built: it may take 0.0 GiB of memory" in programs[f"{runtime}, the whole model"].reason
    monkeypatch.setattr("unity_collage.feedback.room.available_bytes", lambda: weights)
    other = uc.compile(_model(rows=5), **options).plan["main"]
    assert other.comparison is None
    assert any("programs were not compared: it may take" in remark for remark in other.remarks)


@pytest.mark.usefixtures("reads_onnx")
def test_a_model_with_the_fewest_fields_is_taken(runtime, tmp_path) -> None:
    """OpenVINO wants three different fields, the graph among them, before one of them comes twice."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, ("batch", 16))],
        [value("y", TensorProto.FLOAT, ("batch", 8))],
        [numpy_helper.from_array(np.ones((16, 8), np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    program = uc.compile(model, backends=[runtime], database=tmp_path / "costs.sqlite")
    assert np.array_equal(program(np.ones((3, 16), np.float32)).numpy(), np.full((3, 8), 16.0))


def test_a_runtime_that_computes_something_else_is_told_and_not_chosen(
    runtime, tmp_path, monkeypatch
) -> None:
    _give_runtimes(import_model(_model(epsilon=1.0)).whole, monkeypatch)
    backends = ["kernels", "tvm", runtime]
    program = uc.compile(_model(), backends=backends, database=tmp_path / "costs.sqlite", refine=QUICK)
    plan = program.plan["main"]
    assert plan.comparison.winner != f"{runtime}, the whole model"
    told = [remark for remark in plan.remarks if "computes something else: its outputs differ" in remark]
    assert told and RUNTIMES[runtime].title in told[0]


@pytest.mark.parametrize(("scale", "agrees"), [(1e4, True), (1.0, False)])
def test_a_runtime_may_differ_by_what_rounded_inputs_change(
    runtime, tmp_path, monkeypatch, scale, agrees
) -> None:
    other = import_model(_model(activation="Sin", scale=scale, epsilon=0.02)).whole
    _give_runtimes(other, monkeypatch)
    model = _model(activation="Sin", scale=scale)
    backends = ["kernels", "tvm", runtime]
    program = uc.compile(model, backends=backends, database=tmp_path / "costs.sqlite", refine=QUICK)
    programs = {each.name: each for each in program.plan["main"].comparison.programs}
    theirs = programs[f"{runtime}, the whole model"]
    assert (theirs.seconds is not None) == agrees
    assert ("which is rounding" in theirs.remark) == agrees
    assert theirs.reason.startswith("its outputs differ") != agrees


def _give_runtimes(other: WholeModel | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runtimes get ``other`` in place of the model that is compiled."""
    from unity_collage import making

    monkeypatch.setattr(
        making,
        "entrants_of",
        lambda _model, mod, runtimes, precision: entrants_of(other, mod, runtimes, precision),
    )


@pytest.mark.usefixtures("reads_onnx")
def test_results_whose_sizes_depend_on_the_data_are_allocated_by_the_runtime(runtime) -> None:
    model = SessionModel("nonzero", _nonzero().SerializeToString(), ["x"], ["y"], {})
    function = session_module(runtime, [model])["nonzero"]
    x = np.array([0, 1, 0, 2, 3, 0], np.float32)
    found = function(tvm_ffi.from_dlpack(x))
    np.testing.assert_array_equal(np.from_dlpack(found), np.nonzero(x))


def test_a_whole_model_with_such_results_is_refused(runtime) -> None:
    imported = import_model(_nonzero())
    (entrant,) = entrants_of(imported.whole, imported.mod, [RUNTIMES[runtime]], "f32").values()
    with pytest.raises(CollageError, match="the sizes of result 0 are known only when the model has run"):
        entrant.make()


def test_a_result_that_is_not_a_tensor_is_refused_by_that_reason() -> None:
    @I.ir_module
    class Nested:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                y = R.negative(x)
                R.output(y)
            return (y, (y,))

    model = WholeModel(lambda: b"", ["x"], ["y", "z"])
    (entrant,) = entrants_of(model, Nested, [RUNTIMES["onnxruntime"]], "f32").values()
    with pytest.raises(CollageError, match="result 1 is not a tensor"):
        entrant.make()


def test_a_tuple_of_one_result_stays_a_tuple(runtime, tmp_path) -> None:
    @I.ir_module
    class One:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                y = R.negative(x)
                R.output(y)
            return (y,)

    program = uc.compile(One, backends=runtime, database=tmp_path / "costs.sqlite")
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    found = program(x)
    assert len(found) == 1
    np.testing.assert_array_equal(found[0].numpy(), -x)


@pytest.mark.usefixtures("reads_onnx")
def test_wrong_tensors_are_refused(runtime) -> None:
    model = SessionModel("whole", _model().SerializeToString(), ["x"], ["y"], {})
    function = session_module(runtime, [model])["whole"]
    with pytest.raises(TypeError, match="whole takes 1 tensors and 1 results, not 3"):
        function(*[tvm_ffi.from_dlpack(np.zeros((4, 8), np.float32))] * 3)
    with pytest.raises(Exception, match=RUNTIMES[runtime].title):
        function(tvm_ffi.from_dlpack(np.zeros((4, 7), np.float32)))


@pytest.mark.usefixtures("reads_onnx")
def test_a_model_that_a_runtime_refuses_says_why(runtime) -> None:
    model = SessionModel("broken", b"not a model", ["x"], ["y"], {})
    with pytest.raises(Exception, match=f"broken: {RUNTIMES[runtime].title}: "):
        session_module(runtime, [model])["broken"]


def test_a_module_is_written_as_onnx_for_them(runtime, tmp_path) -> None:
    program = uc.compile(
        IRModule({"main": graphs.diamond()}), backends=runtime, database=tmp_path / "costs.sqlite"
    )
    x = RNG.standard_normal(graphs.SHAPE, dtype=np.float32)
    top = np.maximum(x, 0)
    np.testing.assert_allclose(program(x).numpy(), np.exp(top) + np.tanh(top), rtol=1e-5)


def test_a_result_may_be_returned_twice_and_an_input_too(runtime, tmp_path) -> None:
    """PyTorch gives such results one name."""
    torch = pytest.importorskip("torch")

    class Twice(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = -x
            return y, y, x

    x = RNG.standard_normal((4, 8), dtype=np.float32)
    options = {"backends": runtime, "database": tmp_path / "costs.sqlite"}
    found = uc.compile(Twice(), (torch.from_numpy(x),), **options)(x)
    for result, right in zip(found, (-x, -x, x), strict=True):
        np.testing.assert_array_equal(result.numpy(), right)


@pytest.mark.usefixtures("reads_onnx")
def test_inputs_may_be_results_and_results_may_be_named_twice(runtime) -> None:
    """A runtime has one tensor for each name."""
    value = helper.make_tensor_value_info
    x, y = value("x", TensorProto.FLOAT, [3]), value("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "named", [x], [y, x, y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = SessionModel("named", model.SerializeToString(), ["x"], ["y", "x", "y"], {})
    function = session_module(runtime, [session])["named"]
    given, *found = (np.full(3, number, np.float32) for number in (5, 0, 0, 0))
    function(*map(tvm_ffi.from_dlpack, (given, *found)))
    np.testing.assert_array_equal([given, *found], np.outer([5, -5, 5, -5], np.ones(3)))


def test_an_input_that_is_not_read_is_taken(runtime, tmp_path) -> None:
    value = helper.make_tensor_value_info
    inputs = [value(name, TensorProto.FLOAT, [3]) for name in ("unread", "x")]
    y = value("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "unread", inputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = uc.compile(model, backends=runtime, database=tmp_path / "costs.sqlite")
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(program(np.full(3, 9, np.float32), x).numpy(), -x)


def test_products_with_weights_of_bytes_are_not_rounded(runtime, tmp_path) -> None:
    weights = RNG.standard_normal((256, 256)).astype(np.float32)
    scale = np.abs(weights).max(0) / np.float32(127)
    bytes_ = np.round(weights / scale).astype(np.int8)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "bytes",
        [value("x", TensorProto.FLOAT, [8, 256])],
        [value("y", TensorProto.FLOAT, [8, 256])],
        [numpy_helper.from_array(bytes_, "q"), numpy_helper.from_array(scale, "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = uc.compile(model, backends=runtime, database=tmp_path / "costs.sqlite")
    x = RNG.standard_normal((8, 256), dtype=np.float32)
    right = x @ (bytes_ * scale)
    assert np.abs(program(x).numpy() - right).max() < 1e-5 * np.abs(right).max()


@pytest.mark.usefixtures("reads_onnx")
def test_inputs_may_be_bfloat16(runtime, tmp_path) -> None:
    mod = IRModule({"main": function(lambda x: R.nn.relu(R.astype(x, "float32")), [(4, 8)], "bfloat16")})
    program = uc.compile(mod, backends=runtime, database=tmp_path / "costs.sqlite")
    assert [kernel.backend for kernel in program.plan["main"].kernels] == [runtime]
    x = RNG.standard_normal((4, 8), dtype=np.float32).astype("bfloat16")
    np.testing.assert_array_equal(program(x).numpy(), np.maximum(x.astype(np.float32), 0))


def test_a_runtime_that_narrows_the_numbers_of_a_model_takes_no_part(tmp_path) -> None:
    if reason := RUNTIMES["openvino"].why_unavailable():
        pytest.skip(reason)
    mod = IRModule({"main": function(lambda x: R.add(R.sin(x), x), [(64, 64)], "float64")})
    options = {"database": tmp_path / "costs.sqlite", "refine": QUICK}
    plan = uc.compile(mod, backends=["tvm", "openvino"], **options).plan["main"]
    reasons = {each.name: each.reason for each in plan.comparison.programs}
    assert reasons["openvino, the whole model"] == "not built: OpenVINO computes float64 in float32"
    assert plan.comparison.winner != "openvino, the whole model"
    (entrant,) = entrants_of(import_model(_model()).whole, mod, [RUNTIMES["openvino"]], "f32").values()
    assert entrant.why_less_exact(import_model(_model()).mod) is None
    assert entrant.version.startswith("OpenVINO ") and "'INFERENCE_PRECISION_HINT': 'f32'" in entrant.version
    alone = uc.compile(mod, backends="openvino", **options)
    x = RNG.standard_normal((64, 64))
    np.testing.assert_allclose(alone(x).numpy(), np.sin(x) + x, rtol=1e-4, atol=1e-5)


def test_a_model_whose_weights_were_bound_has_no_entrants(runtime, tmp_path) -> None:
    mod = IRModule({"main": graphs.diamond()})
    assert entrants_of(None, mod, [RUNTIMES[runtime]], "f32") == {}
    x = np.zeros(graphs.SHAPE, np.float32)
    with pytest.raises(CollageError, match="takes models as they are, for CPUs: name other backends"):
        name = mod["main"].params[0].name
        uc.compile(mod, backends=runtime, params={name: x}, database=tmp_path / "costs.sqlite")


def test_weights_beside_the_file_are_written_into_the_model(runtime, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    program = uc.compile(path, backends=runtime, database=tmp_path / "costs.sqlite")
    x = RNG.standard_normal((4, 8), dtype=np.float32)
    np.testing.assert_allclose(program(x).numpy(), _expected(x), rtol=1e-5)


def test_names_are_those_of_backends() -> None:
    assert runtimes_among(["tvm", "onednn"]) == (("tvm", "onednn"), [])
    assert runtimes_among(None)[0] is None
    with pytest.raises(CollageError, match="no backend is named"):
        uc.compile(_model(), backends=[])
