"""Where the system has no libgomp, a library of ours takes its name, and oneDNN runs on the pool as elsewhere."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from native_program import Program

from unity_collage import runtime

SCRIPT = """
import ctypes, json, sys
import numpy as np
from unity_collage import runtime
from unity_collage.ffi import tvm_ffi
from unity_collage.runtime import libraries
load = ctypes.CDLL
def without_libgomp(name, *mode):
    if name == "libgomp.so.1":
        raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")
    return load(name, *mode)
ctypes.CDLL = without_libgomp
text, after = sys.argv[1:]
needed = [str(path) for path in libraries.needed_by(["onednn"])]
runtime.load("onednn")
ctypes.CDLL = load
runtime.set_num_threads(2)
main = tvm_ffi.get_global_func("collage.onednn.create")(text, b"").get_function("main")
x, y = np.eye(512, dtype="float32"), np.empty((512, 512), "float32")
main(*map(tvm_ffi.from_dlpack, (x, x, y)))
assert (x == y).all()
exec(after)
print(json.dumps([needed[-3:], runtime.openmp_runtimes()]))
"""


def run_without_libgomp(after: str = "") -> tuple[list[str], list[str]]:
    """The last libraries that oneDNN needs, and the OpenMP runtimes of a process in which it has run on two threads."""
    if reason := runtime.why_unavailable("onednn"):
        pytest.skip(reason)
    program = Program()
    left, right, result = program.input(512, 512), program.input(512, 512), program.output(512, 512)
    program.step("matmul", {"src": left, "weights": right, "dst": result})
    text = json.dumps({"programs": [program.text]})
    command = [sys.executable, "-c", SCRIPT, text, after]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout))


def test_onednn_runs_where_there_is_no_libgomp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()  # a PyTorch that brings none under that name
    (tmp_path / "torch" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    needed, runtimes = run_without_libgomp()
    assert [Path(path).name for path in needed] == [
        "libcollage_openmp.so",
        "libdnnl.so.3",
        "libcollage_onednn.so",
    ]
    assert not runtimes


def test_pytorch_can_be_imported_after_that() -> None:
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        pytest.skip("PyTorch is not installed")
    needed, runtimes = run_without_libgomp(after="import torch; assert torch.ones(9).sum() == 9")
    brought = Path(torch.origin).with_name("lib") / "libgomp.so.1"
    if brought.exists():
        assert needed[0] == str(brought)
        assert runtimes == [str(brought)]
