"""``bisect``: a planted wrong kernel, a planted slow one, and the cases in which no offloaded kernel is the cause."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from said import errors_in
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.backends import registry
from unity_collage.cli import main as cli
from unity_collage.inspection.bisection import Bisection, bisect, reproducer, wrong
from unity_collage.inspection.bisection.alone import alone, error_of
from unity_collage.inspection.bisection.partial import OffloadedKernel, PartialPrograms, annotated_with
from unity_collage.inspection.bisection.slow import Slow
from unity_collage.pipeline import Pipeline
from unity_collage.program import Program
from unity_collage.report.bisection import bisection_summary
from unity_collage.target import host_target
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import misbehaving_backend, only_backends
from unity_collage.to_onnx import NotExported

RIGHT = misbehaving_backend("none", "relax.exp", "relax.tanh", "relax.multiply")
NAMES = ("fake_none", "planted")
BY_RULE = Pipeline(backends=NAMES, measure=False)


@pytest.fixture
def planted(request: pytest.FixtureRequest) -> Iterator[None]:
    """A backend for relu whose kernels misbehave as the test asks, and one whose kernels are right."""
    bad = replace(misbehaving_backend(request.param, "relax.nn.relu"), name="planted")
    with (
        only_backends(RIGHT, bad),
        tvm.transform.PassContext(),
    ):  # their modules cannot be written by the contract
        yield


def compiled(mod: IRModule) -> Program:
    return uc.compile(mod, measure=False, backends=NAMES, recompile=True)


def ladder() -> IRModule:
    """relu, tanh and a sum, three times."""
    return IRModule({"main": graphs.residual_ladder()})


def found_in(mod: IRModule, **more: object) -> Bisection:
    return bisect(mod, compiled(mod), BY_RULE, **more)


@pytest.mark.parametrize("planted", ["wrong_numbers"], indirect=True)
def test_a_wrong_kernel_is_named_with_its_layer_and_error(planted: None) -> None:
    found = found_in(IRModule({"main": graphs.diamond()}))
    (suspect,) = found.suspects
    assert (suspect.function, suspect.backend, suspect.label) == ("main", "planted", "relu")
    assert suspect.bindings == ("lv",) and suspect.shapes == ("float32[4, 16]",) * 2
    assert suspect.error is not None and suspect.error > 0.1
    errors = dict(found.errors)
    assert errors["compiled"] == errors["rebuilt"] > 0.1 > errors["without the suspects"]
    assert "alone makes the results differ; without it they agree" in found.verdict
    text = bisection_summary("model", found)
    assert "1. planted relu\n   layers: lv\n" in text and "against numpy" in text


@pytest.mark.parametrize("planted", ["wrong_numbers"], indirect=True)
def test_one_of_several_wrong_kernels_is_found_and_the_others_are_told(planted: None) -> None:
    found = found_in(ladder())
    assert [suspect.backend for suspect in found.suspects] == ["planted"]
    assert found.offloaded == 6 and "other kernels are wrong as well" in found.verdict


@pytest.mark.parametrize("planted", ["none"], indirect=True)
def test_right_programs_have_no_suspects(planted: None) -> None:
    found = found_in(ladder())
    assert found.suspects == () and "the results agree" in found.verdict


@pytest.mark.parametrize("planted", ["slow"], indirect=True)
def test_a_slow_kernel_is_found(planted: None) -> None:
    found = found_in(IRModule({"main": graphs.diamond()}), slow=True)
    (suspect,) = found.suspects
    assert (suspect.backend, suspect.bindings) == ("planted", ("lv",))
    seconds = dict(found.seconds)
    assert seconds["compiled"] > 0.02 > seconds["without the suspects"]
    assert suspect.error == 0.0


@pytest.mark.parametrize("planted", ["slow"], indirect=True)
def test_a_slow_kernel_is_found_where_the_others_gain_more(
    planted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times are given: each right kernel gains 50 ms on TVM's, the planted one loses 15."""
    seconds: dict[Program, float] = {}
    make = PartialPrograms.program

    def program(self: PartialPrograms, kernels: Sequence[OffloadedKernel]) -> Program:
        made, backends = make(self, kernels), [kernel.candidate.backend for kernel in kernels]
        seconds[made] = 0.2 - 0.05 * backends.count("fake_none") + 0.015 * backends.count("planted")
        return made

    monkeypatch.setattr(PartialPrograms, "program", program)
    monkeypatch.setattr(
        Slow, "_turns", lambda _, programs: [[seconds.get(each, 0.1)] * 3 for each in programs]
    )
    found = found_in(IRModule({"main": graphs.diamond()}), slow=True)
    (suspect,) = found.suspects
    assert suspect.backend == "planted" and suspect.gain == pytest.approx(0.015)
    assert "but one of them is slower than TVM's kernel" in found.verdict


def test_a_fault_of_the_import_is_not_blamed_on_a_kernel(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("onnxruntime")
    path = small(tmp_path / "model.onnx")
    program = uc.compile(str(path), measure=False, recompile=True)
    right = wrong.reference_results
    monkeypatch.setattr(wrong, "reference_results", lambda *args: [value + 1 for value in right(*args)])
    found = bisect(str(path), program, Pipeline(measure=False))
    assert found.against == "onnxruntime" and found.suspects == ()
    assert "no offloaded kernel is the cause" in found.verdict
    assert "the suspect is the import of the model" in found.verdict


def small(path: Path) -> Path:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 17]>
        small (float[4, 16] x) => (float[4, 8] y) { p = MatMul (x, w)  y = Relu (p) }
    """)
    weights = np.random.default_rng(0).standard_normal((16, 8), dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("planted", ["wrong_numbers"], indirect=True)
def test_the_reproducer_has_the_operators_and_the_values(planted: None, tmp_path: Path) -> None:
    output = tmp_path / "case.onnx"
    found = found_in(IRModule({"main": graphs.diamond()}), output=output)
    assert found.wrote == (str(output), str(tmp_path / "case.npz"))
    model = onnx.load(output)
    assert [node.op_type for node in model.graph.node if node.op_type != "Identity"] == ["Relu"]
    stored = np.load(tmp_path / "case.npz")
    assert set(stored.files) == {value.name for value in model.graph.input}
    (values,) = stored.values()
    program = uc.compile(model, measure=False, backends=["planted"], recompile=True)
    wrong = np.asarray(program(values)) - np.maximum(values, 0)
    assert np.count_nonzero(wrong) == 1  # the last element, which the backend spoils


@pytest.mark.parametrize("planted", ["wrong_numbers"], indirect=True)
def test_what_onnx_lacks_is_written_as_a_script(planted: None, tmp_path: Path, monkeypatch) -> None:
    def refuse(*_args: object, **_named: object) -> None:
        raise NotExported("it has no counterpart")

    monkeypatch.setattr(reproducer, "exported", refuse)
    found = found_in(IRModule({"main": graphs.diamond()}), output=tmp_path / "case.onnx")
    script = tmp_path / "case.py"
    assert found.wrote == (str(script), str(tmp_path / "case.npz"))
    text = script.read_text().replace('"planted"', '"tvm"')  # the planted backend is in this process only
    script.write_text(text)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0 and "largest error over the range:" in ran.stdout, ran.stderr


def test_the_command_prints_what_the_document_lists(tmp_path: Path, capfd) -> None:
    pytest.importorskip("onnxruntime")
    path = small(tmp_path / "model.onnx")
    assert cli.main(["bisect", str(path), "--no-measure", "--json", "--backends", "onednn", "tvm"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["against"] == "onnxruntime" and data["suspects"] == [] and "agree" in data["verdict"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--slow", "--against", "tvm"], "--against is for wrong results"),
        (["--slow", "--tolerance", "1e-3"], "--tolerance is for wrong results"),
        (["--against", "eager"], "is compared with onnxruntime or tvm"),
        (["-o", "case.txt"], "--output case.txt: the name of the file ends in .onnx"),
        (["--inputs", "none.npz"], "none.npz is not a file"),
        (["-o", "model.onnx"], "--output model.onnx would overwrite model.onnx"),
    ],
)
def test_mistakes_are_found_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd, words: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "model.onnx")
    assert cli.main(["bisect", "model.onnx", *words]) == (2 if {"--slow", "-o"} & {*words} else 1)
    (line,) = errors_in(capfd.readouterr().err)
    assert reason in line


def test_a_program_of_another_runtime_has_no_kernels_to_leave_out(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = small(tmp_path / "model.onnx")
    program = uc.compile(str(path), backends=["onnxruntime"], database=tmp_path / "costs.sqlite")
    found = bisect(str(path), program)
    assert found.suspects == () and "onnxruntime runs the whole model" in found.verdict


def test_kernels_of_composites_are_run_alone() -> None:
    """A kernel of several operators with weights, as oneDNN makes it."""
    if (reason := registry.known()["onednn"].why_unavailable()) is not None:
        pytest.skip(reason)
    weights = relax.const(np.random.default_rng(0).standard_normal((16, 8), dtype=np.float32))

    @R.function
    def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            a = R.exp(x)
            p = R.matmul(a, weights)
            y = R.nn.relu(p)
            R.output(y)
        return y

    mod = IRModule({"main": main})
    program = uc.compile(mod, measure=False, backends=["onednn", "tvm"], recompile=True)
    pipeline = Pipeline(backends=("onednn", "tvm"), measure=False)
    programs = PartialPrograms.of(
        program, annotated_with(pipeline.until_candidates(), mod, host_target()), host_target()
    )
    inputs = {"x": np.random.default_rng(1).standard_normal((4, 16), dtype=np.float32)}
    kernels = [kernel for kernel in programs.kernels if len(kernel.bindings) > 1]
    assert kernels
    for kernel in kernels:
        assert error_of(programs, kernel, alone(programs, kernel, inputs)) < 1e-5
