"""Ahead of time: every way to build and to export a program, with kernels of a library in it (docs/aot.md)."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import runtime, tvm_plugin
from unity_collage.testing.fixed_cost import FixedCost

pytestmark = pytest.mark.skipif(
    runtime.why_unavailable("openblas") is not None, reason=str(runtime.why_unavailable("openblas"))
)

WEIGHTS = np.random.default_rng(0).standard_normal((16, 16), dtype="float32")
INPUT = np.random.default_rng(1).standard_normal((4, 16), dtype="float32")
EXPECTED = np.maximum(np.tanh(INPUT @ WEIGHTS) @ WEIGHTS, 0)

MODES = ("bytecode", "compiled")


def model() -> IRModule:
    """Two products, which OpenBLAS gets, with a tanh and a relu, which TVM gets."""
    weights = relax.const(WEIGHTS)
    x = relax.Var("x", relax.TensorType(INPUT.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            inner = builder.emit(R.tanh(builder.emit(R.matmul(x, weights))))
            result = builder.emit_output(R.nn.relu(builder.emit(R.matmul(inner, weights))))
        builder.emit_func_output(result)
    return builder.get()


def built(mode: str, system_lib: bool | None = None) -> relax.VMExecutable:
    pipeline = tvm_plugin.pipeline(backends=["openblas"], model=FixedCost())
    return relax.build(
        model(), uc.host_target(), relax_pipeline=pipeline, exec_mode=mode, system_lib=system_lib
    )


@cache
def linked(mode: str, system_lib: bool | None = None) -> relax.VMExecutable:
    return uc.link_external(built(mode, system_lib))


def assert_right(executable: Any) -> None:
    kinds = [str(module.kind) for module in _all(getattr(executable, "mod", executable))]
    assert "collage.openblas" in kinds
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(INPUT))
    np.testing.assert_allclose(result.numpy(), EXPECTED, rtol=1e-4, atol=1e-5)


def _all(module: Any) -> list[Any]:
    return [module, *(below for imported in module.imports for below in _all(imported))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("suffix", ["", ".so", ".tar"])
def test_what_relax_builds_runs_here_and_from_a_file(tmp_path: Path, mode: str, suffix: str) -> None:
    executable = linked(mode)
    if suffix:
        executable.export_library(str(tmp_path / f"model{suffix}"))
        assert_right(tvm.runtime.load_module(str(tmp_path / f"model{suffix}")))
    else:
        assert_right(executable)


SYSTEM_LIBRARY = """
import ctypes, sys
import numpy as np, tvm
from tvm import relax
from unity_collage import runtime
runtime.load("openblas")
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
x, expected = np.load(sys.argv[2]).values()
machine = relax.VirtualMachine(tvm.runtime.system_lib(), tvm.cpu())
np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_system_library_registers_itself_in_the_process_that_links_it(tmp_path: Path, mode: str) -> None:
    linked(mode, system_lib=True).export_library(str(tmp_path / "model.tar"))
    subprocess.run(["tar", "xf", "model.tar"], cwd=tmp_path, check=True)
    objects = [str(path) for path in tmp_path.glob("*.o")]
    subprocess.run(["g++", "-shared", "-o", str(tmp_path / "all.so"), *objects], check=True)
    np.savez(tmp_path / "values.npz", INPUT, EXPECTED)
    command = [sys.executable, "-c", SYSTEM_LIBRARY, str(tmp_path / "all.so"), str(tmp_path / "values.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_compiled_functions_do_not_find_what_is_linked_beside() -> None:
    """If this fails, TVM has fixed it, and ``link_external`` is no longer needed."""
    with pytest.raises(RuntimeError, match=r"Cannot find function fused_matmul\w* in the imported modules"):
        assert_right(built("compiled"))


def test_a_module_of_code_cannot_be_imported_by_other_code() -> None:
    def module(kind: str, is_code: bool) -> Any:
        return SimpleNamespace(
            kind=kind, is_compilation_exportable=lambda: is_code, same_as=lambda other: other.kind == kind
        )

    executable = SimpleNamespace(mod=SimpleNamespace(imports=[module("llvm", True), module("c", True)]))
    with pytest.raises(uc.CollageError, match="do not find kernels in a module of kind c: use exec_mode="):
        uc.link_external(executable)  # pyright: ignore[reportArgumentType]


def test_a_program_of_ours_is_compiled_and_saved_as_one_file(tmp_path: Path) -> None:
    program = uc.compile(model(), backends=["openblas"], estimator=FixedCost())
    program.save(str(tmp_path / "model.so"))
    loaded = uc.load(str(tmp_path / "model.so"))
    for each in (program, loaded):
        np.testing.assert_allclose(np.asarray(each(INPUT)), EXPECTED, rtol=1e-4, atol=1e-5)
