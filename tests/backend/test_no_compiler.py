"""Without a C++ compiler: a model is compiled, checked as a program, saved, and loaded by another process."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiled import LIBRARIES_FIRST
from onnx import TensorProto, helper, numpy_helper

import unity_collage as uc
from unity_collage.lowering import object_file, writing

WEIGHTS = np.random.default_rng(0).standard_normal((16, 8), dtype=np.float32)
X = np.random.default_rng(1).standard_normal((4, 16), dtype=np.float32)


def model() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Sigmoid", ["m"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 8))],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def expected() -> np.ndarray:
    return 1 / (1 + np.exp(-(X @ WEIGHTS)))


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)


def test_a_model_is_compiled_saved_and_loaded(without_compiler: None, tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "model.onnx")
    command = [sys.executable, "-m", "unity_collage.processes.launcher", "unity_collage.cli.main", "compile"]
    options = ["-o", "program.so", "--database", "costs.sqlite", "--budget", "5"]
    done = subprocess.run(
        [*command, "model.onnx", *options], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "measured" in done.stdout  # the recheck ran the whole program
    np.save(tmp_path / "x.npy", X)
    script = (
        "import sys, numpy as np, unity_collage as uc\n"
        "np.save('y.npy', uc.load('program.so')(np.load('x.npy')).numpy())"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=300)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(), rtol=1e-5)


def test_files_of_one_program_are_equal_and_copies_run(without_compiler: None, tmp_path: Path) -> None:
    program = uc.compile(model(), estimator=LIBRARIES_FIRST)
    paths = [tmp_path / "a.so", tmp_path / "b.so", tmp_path / "c.so"]
    program.save(paths[0])
    program.save(paths[1])
    uc.load(paths[0]).save(paths[2])
    assert len({path.read_bytes() for path in paths}) == 1
    assert not object_file.is_linked(paths[0]) and tarfile.is_tarfile(paths[0])
    for _ in range(2):  # two programs of one file are apart
        np.testing.assert_allclose(uc.load(paths[2])(X).numpy(), expected(), rtol=1e-5)


def test_a_cut_file_is_refused(without_compiler: None, tmp_path: Path) -> None:
    path = tmp_path / "a.so"
    uc.compile(model(), estimator=LIBRARIES_FIRST).save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(uc.CollageError, match="it is not a saved program, or only a part of one"):
        uc.load(path)


def test_parts_of_c_source_need_a_compiler(without_compiler: None, tmp_path: Path) -> None:
    (tmp_path / "part.c").write_text("int one(void) { return 1; }")
    with pytest.raises(RuntimeError, match="needs a C\\+\\+ compiler: install one"):
        writing._archive(str(tmp_path / "a.so"), [str(tmp_path / "part.c")])


def test_with_a_compiler_it_is_a_shared_library(tmp_path: Path) -> None:
    path = tmp_path / "a.so"
    uc.compile(model(), estimator=LIBRARIES_FIRST).save(path)
    assert object_file.is_linked(path)
