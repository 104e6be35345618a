"""uc.compile from end to end: what goes in, how the program is called, saved, loaded and timed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from compiled import LIBRARIES_FIRST, arrays, backends_of, compiled, random
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

import unity_collage as uc
from unity_collage.backends.openblas.backend import OPENBLAS
from unity_collage.compiler import compile_with
from unity_collage.errors import CollageError, ModelError, UnknownBackend
from unity_collage.pipeline import collage
from unity_collage.plan.encoding import decode, encode
from unity_collage.plan.plan import Plan
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import only_backends

WEIGHTS = random(16, 8, seed=1)
X = random(4, 16)


def onnx_model(name: str = "x", batch: int | str = 4) -> onnx.ModelProto:
    """relu(x @ weights), from an input ``name``; the weights are listed among the inputs too, as of old."""

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("MatMul", [name, "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["y"]),
    ]
    weights = numpy_helper.from_array(WEIGHTS, "w")
    inputs, outputs = [value("w", 16, 8), value(name, batch, 16)], [value("y", batch, 8)]
    graph = helper.make_graph(nodes, "layer", inputs, outputs, [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(x: np.ndarray = X) -> np.ndarray:
    return np.maximum(x @ WEIGHTS, 0)


def close(got: object, right: object = None) -> None:
    np.testing.assert_allclose(arrays(got), expected() if right is None else right, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def program() -> uc.Program:
    return compiled(onnx_model("gpu_0/data_0"))


def test_an_onnx_model_its_path_and_its_module_are_one_to_compile(tmp_path: Path) -> None:
    from unity_collage.frontend.models import import_model

    onnx.save(onnx_model(), tmp_path / "layer.onnx")
    module = import_model(onnx_model()).mod
    for model in (onnx_model(), tmp_path / "layer.onnx", str(tmp_path / "layer.onnx"), module):
        close(compiled(model)(X))


@pytest.mark.alone
def test_costs_are_measured_once_and_kept(tmp_path: Path) -> None:
    asked: list[str] = []
    for _ in range(2):
        program = uc.compile(onnx_model(), backends=["onednn"], database=tmp_path / "costs.sqlite",
                             progress=lambda _done, _total, label: asked.append(label))  # fmt: skip
        close(program(X))
        assert backends_of(program) == {"onednn"}
    assert len([label for label in asked if label]) == len(set(asked) - {""})


def test_inputs_go_by_position_by_name_and_by_keyword(program: uc.Program) -> None:
    assert program.input_names == ("gpu_0/data_0",)
    close(program(X))
    close(program(tvm.runtime.tensor(X)))
    close(program(**{"gpu_0/data_0": X}))
    close(program(gpu_0_data_0=X))
    close(program(np.asfortranarray(X)))


@pytest.mark.parametrize(
    ("args", "named", "reason"),
    [
        ((), {}, "0 inputs given; the model takes 1: 'gpu_0/data_0'"),
        ((X, X), {}, "2 inputs given; the model takes 1: 'gpu_0/data_0'"),
        ((), {"data": X}, "there is no input 'data'; the model takes 1: 'gpu_0/data_0'"),
    ],
)
def test_wrong_inputs_are_named(program: uc.Program, args: tuple, named: dict, reason: str) -> None:
    with pytest.raises(CollageError, match=reason):
        program(*args, **named)


def test_the_plan_is_plain_data_and_the_module_is_text(program: uc.Program) -> None:
    plan = program.plan["main"]
    assert decode(Plan, json.loads(json.dumps(encode(plan)))) == plan
    assert [(kernel.backend, kernel.label) for kernel in plan.kernels] == [("onednn", "matmul+relu")]
    assert "R.call_dps_packed" in program.mod.script()


def test_a_benchmark_has_its_percentiles_in_order(program: uc.Program) -> None:
    timing = program.benchmark(X, seconds=0.01)
    assert timing["runs"] >= 20 and 0 < timing["p5"] <= timing["median"] <= timing["p95"]


_LOADED_ALONE = """
import sys
import numpy as np
import unity_collage as uc
program = uc.load(sys.argv[1])
np.save(sys.argv[3], program(**{"gpu_0/data_0": np.load(sys.argv[2])}).numpy())
print(*sorted(name for name in sys.modules if name.startswith("unity_collage")))
assert "tvm" not in sys.modules
assert "libtvm_compiler" not in open("/proc/self/maps").read()
"""

_RUNTIME_PART = {
    "",
    "calling",
    "errors",
    "ffi",
    "lowering",
    "lowering.library_file",
    "lowering.object_file",
    "lowering.seal",
    "program",
    "program.compiled",
    "program.facts",
    "program.loading",
    "showing",
    "scratch",
    "tvm_plugin",
}


@pytest.mark.parametrize("backends", [["onednn"], ["openblas"], ["tvm"], ["onednn", "tvm"]], ids="+".join)
def test_a_saved_program_runs_in_a_process_without_the_compiler(backends: list[str], tmp_path: Path) -> None:
    saved, given, found = tmp_path / "layer.so", tmp_path / "x.npy", tmp_path / "y.npy"
    compiled(onnx_model("gpu_0/data_0"), backends).save(saved)
    np.save(given, X)
    code = [sys.executable, "-c", _LOADED_ALONE, str(saved), str(given), str(found)]
    result = subprocess.run(code, capture_output=True, text=True, cwd="/", check=False)
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(np.load(found), expected(), rtol=1e-4, atol=1e-5)
    parts = {name.removeprefix("unity_collage").lstrip(".") for name in result.stdout.split()}
    assert {part for part in parts if part.split(".")[0] not in ("calling", "runtime")} <= _RUNTIME_PART
    rarely = {"custom_op_libraries", "custom_ops", "remote_calls", "timing", "torch_calls", "torch_models"}
    assert not parts & {"calling.describe", "calling.sharing", *(f"runtime.{name}" for name in rarely)}


def test_saving_after_a_run_and_loading_are_quiet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = compiled(onnx_model("gpu_0/data_0"), ["tvm"])
    program(X)
    program.save(tmp_path / "layer.so")
    loaded = uc.load(tmp_path / "layer.so")
    assert capfd.readouterr().err == ""
    assert (loaded.input_names, loaded.plan, loaded.mod) == (program.input_names, None, None)
    close(loaded(X))
    loaded.save(tmp_path / "again.so")
    assert (tmp_path / "again.so").read_bytes() == (tmp_path / "layer.so").read_bytes()


def test_a_path_that_is_written_again_is_loaded_anew(tmp_path: Path) -> None:
    """The dynamic loader alone would give the first library back."""
    for factor in (1.0, 2.0):
        compiled(scaled(factor), ["tvm"]).save(tmp_path / "scaled.so")
        close(uc.load(tmp_path / "scaled.so")(X), factor * X)


def scaled(factor: float) -> IRModule:
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.multiply(R.add(x, R.const(0.5)), R.const(factor)))
            y = builder.emit_output(R.subtract(y, R.const(0.5 * factor)))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("layer.txt", "the name of a shared library ends in .so"),
        ("nowhere/layer.so", "there is no folder"),
        ("folder.so", "it is a folder"),
    ],
)
def test_why_a_program_cannot_be_saved(program: uc.Program, tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder.so").mkdir()
    with pytest.raises(CollageError, match=reason):
        program.save(tmp_path / name)


def test_why_a_file_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(CollageError, match=r"text\.so cannot be loaded as a program: "):
        uc.load(tmp_path / "text.so")
    with pytest.raises(CollageError, match="is not a file"):
        uc.load(tmp_path / "nothing.so")


@pytest.mark.parametrize(
    ("model", "options", "error", "reason"),
    [
        (3, {}, ModelError, "a model is an IRModule, .* or a path, not a int"),
        ("nothing.onnx", {}, ModelError, "nothing.onnx is not a file"),
        (IRModule({}), {}, ModelError, "no function named main"),
        (scaled(1.0), {"backends": "mkl"}, UnknownBackend, "no backend named 'mkl'; there are: onednn, "),
        (
            scaled(1.0),
            {"target": Target("c")},
            CollageError,
            "the target is c, but programs are compiled for CPUs",
        ),
        (scaled(1.0), {"database": "/proc/none/costs"}, CollageError, "costs cannot be kept in /proc/none"),
    ],
)
def test_what_cannot_be_compiled_says_why(model: object, options: dict, error: type, reason: str) -> None:
    with pytest.raises(error, match=reason):
        uc.compile(model, **options)


def test_ctrl_c_in_a_pass_stays_what_it_is() -> None:
    @tvm.transform.module_pass(opt_level=0, name="Interrupted")
    def interrupted(_mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_with(interrupted, scaled(1.0))


def test_passes_of_ones_own_make_a_program_too() -> None:
    passes = [*collage(["onednn"], LIBRARIES_FIRST).passes, relax.transform.DeadCodeElimination()]
    close(compile_with(tvm.transform.Sequential(passes), onnx_model())(X))


def test_a_batch_that_only_the_caller_knows() -> None:
    program = compiled(onnx_model(batch="batch"))
    for rows in (1, 3):
        close(program(random(rows, 16)), expected(random(rows, 16)))


def test_the_plan_tells_which_backend_was_missing() -> None:
    gone = replace(OPENBLAS, why_unavailable=lambda: "its library is missing")
    told = "compiled without the backend openblas: its library is missing"
    model = IRModule({"main": graphs.chain()})
    with only_backends(gone):
        assert told in uc.compile(model, measure=False).plan["main"].remarks
        assert told not in uc.compile(model, backends=["tvm"], measure=False).plan["main"].remarks


def test_a_large_result_that_follows_from_constants_is_new_in_each_call() -> None:
    """TVM makes a constant of it; a caller may write to results."""
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            table = builder.emit(R.add(relax.const(random(1024, 1)), relax.const(random(512))))
            out = builder.emit_output(relax.Tuple([builder.emit(R.exp(x)), table]))
        builder.emit_func_output(out)
    program = uc.compile(builder.get(), measure=False)
    first, second = (program(random(4))[1] for _ in range(2))
    assert first.data_ptr() != second.data_ptr()
    np.testing.assert_array_equal(arrays(first), arrays(second))
