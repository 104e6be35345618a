"""Whole compiles for a GPU where there is none: kernels are built, launched and compared, and compute nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_loops import needs_nvrtc

from unity_collage.lowering.nvrtc import HEADERS

HERE = Path(__file__).parent
SOURCE = HERE / "cuda_stand_in.cc"
DRIVER, RUNTIME = "libcuda.so.1", "libcudart.so.13"
OTHER_NUMBERS = "not finite: output 0 is infinite or NaN where the reference is finite"
"""Why a kernel that leaves its outputs as they are has no cost: it has been built, launched and compared."""

pytestmark = [needs_nvrtc, pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of processes that find the stand-in for CUDA."""
    site = tmp_path_factory.mktemp("site")
    library = site / "lib" / RUNTIME
    library.parent.mkdir()
    _build(library)
    _build(library.with_name(DRIVER))
    info = (
        site / "nvidia_cuda_runtime-13.0.dist-info"
    )  # found before NVIDIA's own wheel, whose headers are used
    info.mkdir()
    (info / "RECORD").write_text(f"lib/{RUNTIME},,\n")
    return {
        **os.environ,
        "LD_LIBRARY_PATH": _before("LD_LIBRARY_PATH", library.parent),
        "PYTHONPATH": _before("PYTHONPATH", site, HERE.parent / "gpu"),
    }


def _before(variable: str, *folders: Path) -> str:
    """These folders before those that the variable has."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get(variable)])])


def _build(library: Path) -> None:
    headers = HEADERS[0].path()
    assert headers is not None
    versions = library.with_name("versions.map")
    versions.write_text(f"{RUNTIME} {{ global: *; }};\n")
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-w", f"-I{headers.parent}", str(SOURCE), "-o", str(library),
         f"-Wl,-soname,{library.name}", f"-Wl,--version-script={versions}"],
        check=True,
    )  # fmt: skip


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_every_kernel_is_built_launched_and_compared(
    precision: str, environment: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, str(HERE / "compile_for_gpu.py"), str(tmp_path), precision]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert (found["device"], found["shape"], found["loaded"]) == ("cuda", [2, 10], [2, 10])
    assert len(found["reasons"]) > 20 and set(found["reasons"]) == {OTHER_NUMBERS}


TOUCH = """
import ctypes, numpy as np, tvm
from unity_collage.runtime import cuda
cuda.load()
there = tvm.runtime.tensor(np.arange(4, dtype="float32"), tvm.cuda(0))
assert there.numpy().tolist() == [0, 1, 2, 3]
print("copied", flush=True)
ctypes.string_at(there.data_ptr(), 16)
"""


def test_the_host_cannot_read_memory_of_the_device(environment: dict[str, str]) -> None:
    """So whatever passes with the stand-in has copied."""
    done = subprocess.run(
        [sys.executable, "-c", TOUCH], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.returncode) == ("copied", -signal.SIGSEGV), done.stderr[-2000:]
