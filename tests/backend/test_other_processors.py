"""Programs for a processor that this machine does not have: kernels by rule, files without a linker, clear refusals."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import unity_collage as uc
from unity_collage.cli.main import main
from unity_collage.errors import CollageError, UnavailableBackend
from unity_collage.inspection.given_plan import compare_plan
from unity_collage.lowering import elf, writing
from unity_collage.measure.measured import MeasuredCost
from unity_collage.pipeline import Pipeline
from unity_collage.runtime.vendors import VENDORS, Vendor

ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
AARCH64 = 183
"""As ELF numbers it."""
UNMEASURED = (
    "kernels for neoverse-n1 cannot be measured here: it is for aarch64, and this processor is x86_64"
)

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="it compiles for another one than x86_64"
)


def model() -> onnx.ModelProto:
    """A convolution that Winograd's algorithm computes, a product with an operator in front, and a sigmoid."""
    random = np.random.default_rng(0)
    weights = {"w": (16, 16, 3, 3), "matrix": (16, 8)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "matrix"], ["m"]),
        helper.make_node("Sigmoid", ["m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8))],
        [numpy_helper.from_array(random.standard_normal(s, dtype=np.float32), n) for n, s in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> uc.Program:
    return uc.compile(model(), target=ARM, database=tmp_path_factory.mktemp("costs") / "costs.sqlite")


def test_kernels_are_chosen_by_rule_and_the_plan_says_why(program: uc.Program) -> None:
    assert program.plan is not None
    plan = program.plan["main"]
    assert f"kernels were chosen by rule: {UNMEASURED}" in plan.remarks
    backends = {kernel.backend for kernel in plan.kernels}
    assert {"kernels", "openblas"} <= backends
    assert "onednn" not in backends


def test_it_is_saved_as_object_code_of_its_processor(program: uc.Program, tmp_path: Path) -> None:
    path = tmp_path / "program.so"
    program.save(path)
    with tarfile.open(path, "r:") as archive:
        archive.extractall(tmp_path, filter="data")
    assert {elf.machine_of(file) for file in tmp_path.glob("*.o")} == {AARCH64}
    with pytest.raises(CollageError, match="it was compiled for aarch64, and this processor is x86_64"):
        uc.load(path)


def test_it_is_no_bundle_of_this_machine(program: uc.Program, tmp_path: Path) -> None:
    with pytest.raises(
        CollageError, match=r"libraries of this machine, .* and the program is for aarch64: save it as a"
    ):
        program.save(tmp_path / "bundle", bundle=True)
    assert not (tmp_path / "bundle").exists()


def test_it_does_not_run_here(program: uc.Program) -> None:
    with pytest.raises(CollageError, match="the program cannot run here"):
        program(np.zeros((1, 16, 16, 16), np.float32))


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"refine": uc.Refinement()}, "refine"),
        ({"percentile": 90.0}, "percentile"),
        ({"explain": True}, "explain"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_option_that_needs_costs_is_refused(option: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(CollageError, match=f"^{named} needs costs, and {UNMEASURED}$"):
        uc.compile(model(), target=ARM, database=tmp_path / "costs.sqlite", **option)


@pytest.mark.parametrize("command", ["bench", "explain"])
def test_a_command_that_measures_says_why_not(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(model(), tmp_path / "model.onnx")
    assert main([command, "-q", str(tmp_path / "model.onnx"), "--target", ARM]) == 1
    assert capsys.readouterr().err == f"unity-collage: {UNMEASURED}\n"


def test_a_plan_of_ones_own_has_no_costs_either(tmp_path: Path) -> None:
    pipeline = Pipeline(model=MeasuredCost(uc.CostDatabase(tmp_path / "costs.sqlite")))
    with pytest.raises(CollageError, match=f"^{UNMEASURED}$"):
        compare_plan(model(), {"main": []}, pipeline, target=ARM)


def test_a_dry_run_says_that_nothing_is_measured(tmp_path: Path) -> None:
    with pytest.raises(
        CollageError, match=f"^{UNMEASURED}: its kernels are chosen by rule, and nothing is measured$"
    ):
        uc.dry_run(model(), target=ARM, database=tmp_path / "costs.sqlite")


@pytest.mark.parametrize("locked", [False, True])
def test_no_runtime_is_tried_here(locked: bool, tmp_path: Path) -> None:
    """It is for this machine, and the program around it is not."""
    uc.CostDatabase(tmp_path / "costs.sqlite").close()
    options: dict[str, Any] = {
        "backends": ["onnxruntime"],
        "database": tmp_path / "costs.sqlite",
        "locked": locked,
    }
    program = uc.compile(model(), target=ARM, **options)
    assert program.plan is not None
    assert any(UNMEASURED in remark for remark in program.plan["main"].remarks)


def test_threads_of_the_other_machine_need_not_be_here(tmp_path: Path) -> None:
    """There may be more of them than this process may use; the number of a target is that of its program."""
    program = uc.compile(model(), target=f"{ARM} -num-cores=80", database=tmp_path / "costs.sqlite")
    assert program.threads == 80


def test_a_library_for_one_kind_of_processor_makes_no_kernels_for_others(tmp_path: Path) -> None:
    reason = "backend onednn cannot be used here: it makes kernels for x86_64, and the target is aarch64"
    with pytest.raises(UnavailableBackend, match=reason):
        uc.compile(model(), target=ARM, backends=["onednn"], database=tmp_path / "costs.sqlite")


def test_a_cross_compiler_of_the_user_is_a_linker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    assert not writing.has_linker_for("aarch64")
    cross = tmp_path / "aarch64-linux-gnu-g++"
    cross.write_text("#!/bin/sh\necho aarch64-linux-gnu\n")
    cross.chmod(0o755)
    monkeypatch.setenv("CXX", str(cross))
    assert writing.has_linker_for("aarch64")
    assert not writing.has_linker_for("riscv64")
    assert not writing.has_linker_for("x86_64") and not writing.has_linker_for("")
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    assert not writing.has_linker_for("aarch64")


def test_a_wheel_that_does_not_exist_here_is_not_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = Vendor("somebodys-blas", "libblas.so", processors=("riscv64",))
    assert vendor.why_not_installed() == "somebodys-blas is for riscv64 only, and this processor is x86_64"
    monkeypatch.setitem(VENDORS, "onednn", vendor)
    assert uc.runtime.why_unavailable("onednn") == vendor.why_no_wheel()


def test_the_package_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unity_collage", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"unity-collage {uc.__version__}\n", done.stderr
