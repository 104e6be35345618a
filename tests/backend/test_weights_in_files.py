"""Weights of saved programs stay in their file, and a process that runs one loads nothing of TVM's compiler."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi.libinfo
from compiled import backends_of, compiled, random
from onnx import TensorProto, helper, numpy_helper
from resealed import facts_of, resealed
from tvm.support import cc

import unity_collage as uc
from unity_collage.compiler import compile_with
from unity_collage.cost.model import CostModel, Overheads, Workload
from unity_collage.lowering import elf
from unity_collage.lowering.imports_object import packed_imports
from unity_collage.passes import MakeVariants
from unity_collage.pipeline import collage
from unity_collage.plan.costs import Cost
from unity_collage.runtime import libraries
from unity_collage.runtime.virtual_machine import runtimes_in

X = np.ones((4, 192), np.float32)
SECTION = b"__collage__modules_"


def model(seed: int, size: int = 192) -> onnx.ModelProto:
    """A product with a matrix that is large enough for pages of its own."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
        "large",
        [value("x", TensorProto.FLOAT, (4, size))],
        [value("y", TensorProto.FLOAT, (4, size))],
        [numpy_helper.from_array(weights(seed, size), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def weights(seed: int, size: int = 192) -> np.ndarray:
    return random(size, size, seed=seed)


def expected(seed: int) -> np.ndarray:
    return np.maximum(X @ weights(seed), 0)


BACKENDS = ["onednn", "openblas", "tvm"]


@cache
def program_of(seed: int, backend: str) -> uc.Program:
    return compiled(model(seed), [backend])


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_weights_are_read_from_the_file_of_their_program(backend: str, tmp_path: Path) -> None:
    loaded = []
    for seed in (1, 2):  # two programs of one process, each with weights of its own
        path = tmp_path / f"{seed}.so"
        program_of(seed, backend).save(path)
        assert SECTION in path.read_bytes()
        loaded += [uc.load(path), uc.load(path)]
        path.unlink()  # what is mapped stays
    for number, program in enumerate(loaded):
        np.testing.assert_allclose(program(X).numpy(), expected(1 + number // 2), rtol=1e-4, atol=1e-4)


def test_a_file_is_loaded_twice_and_one_program_ends(tmp_path: Path) -> None:
    for backend in BACKENDS:
        path = tmp_path / f"{backend}.so"
        program_of(1, backend).save(path)
        first, second = uc.load(path), uc.load(path)
        del second
        gc.collect()
        np.testing.assert_allclose(first(X).numpy(), expected(1), rtol=1e-4, atol=1e-4)
        first = uc.load(path)
        gc.collect()
        np.testing.assert_allclose(first(X).numpy(), expected(1), rtol=1e-4, atol=1e-4)


def test_a_program_is_written_as_tvm_writes_it(tmp_path: Path) -> None:
    """Without its constants TVM writes bytes that are put together again; afterwards the program still has them."""
    for backend in BACKENDS:
        executable = program_of(1, backend)._executable
        module = executable.mod
        path = packed_imports(module, False, f"{backend}_", str(tmp_path))
        right = np.from_dlpack(tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(module))
        assert right.tobytes() in Path(path).read_bytes()
        packed, *constants = tvm_ffi.get_global_func("collage.runtime.pack_imports")(module, b"mark" * 6)
        assert np.from_dlpack(packed).nbytes < X.shape[1] ** 2 < right.nbytes
        assert [np.from_dlpack(each[0]).nbytes for each in constants] == [4 * X.shape[1] ** 2]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_a_symbol_names_what_is_written_behind_its_library(tmp_path: Path) -> None:
    pieces = [np.arange(100_000, dtype=np.int8), np.frombuffer(b"an end", np.int8)]
    part = elf.Part(b"the_symbol", [np.zeros(64, np.int8)])
    elf.write(tmp_path / "a.o", [part, elf.Part(b"another", [np.arange(9, dtype=np.int8)])], elf.X86_64)
    library = tmp_path / "a.so"
    cc.create_shared(str(library), [str(tmp_path / "a.o")])
    elf.append(library, b"the_symbol", pieces)
    loaded = ctypes.CDLL(str(library))
    expected = b"".join(piece.tobytes() for piece in pieces)
    symbol = (ctypes.c_char * len(expected)).in_dll(loaded, "the_symbol")
    assert symbol.raw == expected
    assert (ctypes.c_char * 9).in_dll(loaded, "another").raw == bytes(range(9))
    with pytest.raises(RuntimeError, match="no symbol missing"):
        elf.append(library, b"missing", pieces)


def test_small_weights_and_object_files_have_no_pages_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(model(1, 16), ["openblas"]).save(tmp_path / "small.so")
    monkeypatch.setattr("tvm.support.cc.get_cc", lambda: None)
    compiled(model(1), ["openblas"]).save(tmp_path / "objects.so")
    for name in ("small.so", "objects.so"):
        assert SECTION not in (tmp_path / name).read_bytes()
    np.testing.assert_allclose(uc.load(tmp_path / "objects.so")(X).numpy(), expected(1), rtol=1e-4, atol=1e-4)


@dataclass(frozen=True)
class BySize(CostModel):
    """A backend is fast for kernels whose first operand has a given size along its second axis, and slow for others."""

    fast: Mapping[int, str]

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: self._cost(workload) for workload in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return Overheads(3e-7)

    def _cost(self, workload: Workload) -> Cost:
        shape = workload.func.params[0].ty.shape.values
        size = int(shape[1].value) if len(shape) == 3 else 0
        seconds = 1e-6 * size * (1 if self.fast.get(size) == workload.backend else 10) + 1e-6
        return Cost(seconds, seconds, seconds, 1, "formula")


def test_variants_for_three_sizes_have_each_weight_once(tmp_path: Path) -> None:
    """Kernels of TVM read it in panels, which are made of it when the program is loaded, libraries as it is."""
    size, fast = 768, {16: "tvm", 48: "openblas", 130: "onednn"}
    w = weights(5, size) / 32
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "sizes",
        [value("x", TensorProto.FLOAT, ("batch", "length", size))],
        [value("y", TensorProto.FLOAT, ("batch", "length", size))],
        [numpy_helper.from_array(w, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    passes = [
        MakeVariants({"batch": [2], "length": [*fast]}),
        *collage([*fast.values()], BySize(fast)).passes,
    ]
    with tvm.transform.PassContext():  # without the contract instrument: it prints all weights
        program = compile_with(tvm.transform.Sequential(passes), made)
    assert backends_of(program) == set(fast.values())
    program.save(tmp_path / "sizes.so")
    data = (tmp_path / "sizes.so").read_bytes()
    assert data.count(w[:1, :8].tobytes()) == 1
    assert len(data) < 1.5 * w.nbytes
    loaded = uc.load(tmp_path / "sizes.so")
    for batch, length in ((2, 16), (2, 48), (2, 130), (1, 7), (3, 1), (1, 0)):
        x = random(batch, length, size, seed=length)
        np.testing.assert_allclose(loaded(x).numpy(), x @ w, rtol=1e-4, atol=1e-4)


def test_a_program_names_the_runtimes_that_it_needs(tmp_path: Path) -> None:
    for backend in BACKENDS:
        program = program_of(1, backend)
        assert runtimes_in(program._executable) == ([] if backend == "tvm" else [backend])


ALONE = """
import sys
import numpy as np
import unity_collage as uc
result = uc.load(sys.argv[1])(np.ones((4, 192), "float32"))
mapped = open("/proc/self/maps").read()
assert "libtvm_compiler" not in mapped
needless = {"tvm", "torch", "importlib.metadata", "tvm_ffi.cpp.extension", "tvm_ffi.dataclasses", "base64", "tarfile"}
assert not needless & set(sys.modules), needless & set(sys.modules)
assert [name for name in ("dnnl", "openblas32", "libscipy_openblas.so") if name in mapped] == sys.argv[3:], mapped
array = np.asarray(result)
assert np.array_equal(array, result.numpy()) and array.dtype == "float32" and "shape=(4, 192)" in repr(result)
np.save(sys.argv[2], array)
import tvm_ffi
tvm_ffi.cpp.load_inline, tvm_ffi.libinfo.im.version("apache-tvm-ffi")  # what was left out is there when it is used
import tvm
assert type(uc.load(sys.argv[1])(array)) is tvm.runtime.Tensor
assert np.array_equal(np.asarray(uc.load(sys.argv[1])(np.ones((4, 192), "float32"))), array)
"""


def test_a_process_loads_only_what_its_program_needs(tmp_path: Path) -> None:
    program_of(1, "onednn").save(tmp_path / "a.so")
    arguments = [str(tmp_path / "a.so"), str(tmp_path / "y.npy"), "dnnl"]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *arguments],
        capture_output=True,
        text=True,
        cwd="/",  # in a checkout Python would take the package without its native part
        check=False,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected(1), rtol=1e-4, atol=1e-4)


def test_functions_of_tvm_that_are_written_in_python_are_found(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "places",
        [value("x", TensorProto.FLOAT, (6,))],
        [value("y", TensorProto.INT64, (1, "n"))],
    )
    places = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled(places).save(tmp_path / "places.so")
    code = (
        "import sys, numpy as np, unity_collage as uc; x = np.float32([0, 1, 0, 2, 0, 3]); "
        "program = uc.load(sys.argv[1]); program.benchmark(x, seconds=0.01); print(program(x).numpy().tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "places.so")], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[[1, 3, 5]]", done.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_the_example_in_cpp_runs_a_program(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "examples" / "cpp" / "run.cc"
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi()).parent
    headers = [f"-isystem{path}" for path in tvm_ffi.libinfo.include_paths()]
    link = [f"-L{library}", "-ltvm_ffi", "-ldl", f"-Wl,-rpath,{library}"]
    program = tmp_path / "run"
    build = [
        "g++",
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        str(source),
        "-o",
        str(program),
        *headers,
        *link,
    ]
    subprocess.run(build, check=True)
    program_of(1, "openblas").save(tmp_path / "a.so")
    needed = [str(path) for path in libraries.needed_by(["openblas"])]
    said = subprocess.run(
        [program, "a.so", "4x192", *needed], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    assert said[0] == "first" and float(said[1]) == pytest.approx(
        float(expected(1)[0, 0]), rel=1e-4, abs=1e-4
    )

    def refusal(name: str, *libraries: str) -> str:
        failed = subprocess.run(
            [program, name, "4x192", *libraries], cwd=tmp_path, capture_output=True, text=True
        )
        assert failed.returncode == 1 and failed.stderr.startswith("run: ") and failed.stderr.count("\n") == 1
        return failed.stderr

    data = (tmp_path / "a.so").read_bytes()
    (tmp_path / "cut.so").write_bytes(data[: len(data) // 2])
    resealed(tmp_path / "a.so", tmp_path / "old.so", instruction_sets=["fma4", "popcnt", "xop"])
    newer = facts_of(tmp_path / "a.so")["libraries"] | {"openblas": 99}
    resealed(tmp_path / "a.so", tmp_path / "new.so", libraries=newer)
    assert "b.so is not a file" in refusal("b.so", *needed)
    assert "its end is missing" in refusal("cut.so", *needed)
    assert "a processor with fma4, xop, which this one lacks" in refusal("old.so", *needed)
    assert "it needs version 99 of libcollage_openblas.so, and this is version " in refusal("new.so", *needed)
    assert "it needs libcollage_openblas.so, which is not loaded" in refusal("a.so", *needed[:2])
