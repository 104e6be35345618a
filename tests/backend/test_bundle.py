"""Bundles: a folder with a program and its libraries, which callers in C and C++ open."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiled import compiled
from onnx import TensorProto, helper
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.cli import main as cli
from unity_collage.errors import CollageError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "cpp"
WEIGHT = np.random.default_rng(0).standard_normal((16, 8), dtype=np.float32)
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def _model() -> IRModule:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 16), "float32"), w: R.Tensor((16, 8), "float32")) -> R.Tensor(
            (4, 8), "float32"
        ):
            with R.dataflow():
                y = R.nn.relu(R.matmul(x, w))
                R.output(y)
            return y

    return Module


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ to link a program")
    folder = tmp_path_factory.mktemp("bundles") / "bundle"
    compiled(_model(), ["onednn"]).save(folder, bundle=True)
    return folder


def test_it_has_what_the_program_needs(bundle: Path) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text())
    named = {*manifest["libraries"], *manifest["stand_ins"].values(), manifest["program"]}
    assert named <= {path.name for path in bundle.iterdir()}
    assert "libcollage_onednn.so" in named and manifest["stand_ins"] == {
        "libgomp.so.1": "libcollage_openmp.so"
    }
    assert (bundle / "include" / "unity_collage.h").is_file()


_LIBRARY = """
import ctypes, json, os, sys
import threading
folder = sys.argv[1]
ctypes.CDLL(folder + "/libtvm_ffi.so")
lib = ctypes.CDLL(folder + "/libcollage_runtime.so")
class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.POINTER(ctypes.c_int64)), ("ndim", ctypes.c_int32), ("type", ctypes.c_int)]
class Value(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_int64)), ("ndim", ctypes.c_int32), ("type", ctypes.c_int)]
lib.collage_open.restype, lib.collage_error.restype = ctypes.c_void_p, ctypes.c_char_p
lib.collage_inputs.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.POINTER(Value))]
lib.collage_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(Tensor), ctypes.c_int32, ctypes.POINTER(Tensor), ctypes.c_int32]
def opened():
    program = lib.collage_open(folder.encode())
    return program or sys.exit(lib.collage_error().decode())
"""  # noqa: E501

_CALLER = (
    _LIBRARY
    + """
program = opened()
values = ctypes.POINTER(Value)()
count = lib.collage_inputs(program, ctypes.byref(values))
names = [[values[i].name.decode(), [values[i].shape[k] for k in range(values[i].ndim)], values[i].type] for i in range(count)]
kept = []
def tensor(numbers, shape, type=1):
    data = (ctypes.c_float * (len(numbers) + 1))(0.0, *numbers)
    kept.append(data)
    # Not aligned: behind one element.
    return Tensor(ctypes.addressof(data) + 4, (ctypes.c_int64 * len(shape))(*shape), len(shape), type)
given = json.load(open(sys.argv[2]))
def run(rows=4):
    inputs = (Tensor * 2)(tensor(given["x"], [4, 16]), tensor(given["w"], [16, 8]))
    out = (ctypes.c_float * (8 * rows))()
    result = (Tensor * 1)(Tensor(ctypes.addressof(out), (ctypes.c_int64 * 2)(rows, 8), 2, 1))
    status = lib.collage_run(program, inputs, 2, result, 1)
    return list(out) if status == 0 else lib.collage_error().decode()
lib.collage_close.argtypes, lib.collage_close.restype = [ctypes.c_void_p], None
first = run()
other = lib.collage_open(folder.encode())
lib.collage_close(other)  # the other program of the same file still runs
many = [None] * 4
threads = [threading.Thread(target=lambda i=i: many.__setitem__(i, run())) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
view = (Tensor * 1)(Tensor(None, None, 0, 0))
inputs = (Tensor * 2)(tensor(given["x"], [4, 16]), tensor(given["w"], [16, 8]))
assert lib.collage_run(program, inputs, 2, view, 1) == 0
seen = [[view[0].shape[k] for k in range(view[0].ndim)], view[0].type, list((ctypes.c_float * 32).from_address(view[0].data))]
wrong = run(rows=3)
few = lib.collage_error().decode() if lib.collage_run(program, inputs, 1, view, 1) else ""
maps = sorted({line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if ".so" in line})
print(json.dumps({"names": names, "first": first, "equal": all(m == first for m in many), "seen": seen, "wrong": wrong, "few": few, "maps": maps}))
"""  # noqa: E501
)


def _called(folder: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """A caller without this package: Python without its installed packages stands in for C."""
    x = np.random.default_rng(1).standard_normal((4, 16), dtype=np.float32)
    given = tmp_path / "given.json"
    given.write_text(json.dumps({"x": x.ravel().tolist(), "w": WEIGHT.ravel().tolist()}))
    return _run(_CALLER, folder, given)


def _run(script: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={}, check=False)


def test_it_runs_without_this_package_wherever_it_is(bundle: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(bundle, moved)
    done = _called(moved, tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    x = np.random.default_rng(1).standard_normal((4, 16), dtype=np.float32)
    right = np.maximum(x @ WEIGHT, 0)
    assert said["names"] == [["x", [4, 16], 1], ["w", [16, 8], 1]]
    np.testing.assert_allclose(np.reshape(said["first"], (4, 8)), right, rtol=1e-4, atol=1e-5)
    assert said["equal"]
    assert said["seen"][:2] == [[4, 8], 1]
    np.testing.assert_allclose(np.reshape(said["seen"][2], (4, 8)), right, rtol=1e-4, atol=1e-5)
    assert "result 0 is float32, and its buffer has another type or shape" in said["wrong"]
    assert said["few"]
    assert not [path for path in said["maps"] if "site-packages" in path or str(bundle) in path]


_REPLACED = (
    _LIBRARY
    + """
raw = (ctypes.c_char * 128)()
place = -(-ctypes.addressof(raw) // 64) * 64  # where it need not be copied
(ctypes.c_float * 4).from_address(place)[:] = [1, 2, 3, 4]
def run(program):
    given, views = (Tensor * 1)(Tensor(place, (ctypes.c_int64 * 1)(4), 1, 1)), (Tensor * 3)()
    if lib.collage_run(program, given, 1, views, 3) != 0:
        sys.exit(lib.collage_error().decode())
    found = [(ctypes.c_float * 4).from_address(view.data) for view in views]
    numbers = [list(each) for each in found]
    for each in found:
        each[:] = [0] * 4
    return numbers
old = opened()
said = [run(old), run(old)]
os.replace(sys.argv[2], folder + "/program.so")
new = opened()
said += [run(new), run(old)]
os.utime(folder + "/program.so")
try:
    opened()
except SystemExit as error:
    said.append(str(error))
print(json.dumps(said))
"""
)


def _program(weight: float) -> IRModule:
    """Returns its input, a weight, and their sum."""
    x, y = relax.Var("x", relax.TensorType((4,), "float32")), relax.const(np.full(4, weight, np.float32))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.Tuple([x, y, builder.emit(R.add(x, y))]))
        builder.emit_func_output(out)
    return builder.get()


def test_views_and_files_that_were_replaced(tmp_path: Path) -> None:
    """A caller may write to all views; an open program keeps its code, and its file opens as what it is now."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ to link a program")
    for weight, name in ((10, "first"), (20, "second")):
        compiled(_program(weight), ["tvm"]).save(tmp_path / name, bundle=True)
    done = _run(_REPLACED, tmp_path / "first", tmp_path / "second" / "program.so")
    assert done.returncode == 0, done.stderr
    first = [[1, 2, 3, 4], [10] * 4, [11, 12, 13, 14]]
    second = [[1, 2, 3, 4], [20] * 4, [21, 22, 23, 24]]
    *numbers, reason = json.loads(done.stdout)
    assert numbers == [first, first, second, first]
    assert "it was written to while a program of it is open; close that first" in reason


_WRITTEN = (
    _LIBRARY
    + """
raw = (ctypes.c_char * 128)()
place = -(-ctypes.addressof(raw) // 64) * 64  # where it need not be copied
def tensor(data, *shape, type=1):
    return Tensor(data, (ctypes.c_int64 * len(shape))(*shape), len(shape), type)
def run(given, results):
    return lib.collage_run(program, (Tensor * len(given))(*given), len(given), (Tensor * 2)(*results), 2)
program = opened()
x = (ctypes.c_float * 4).from_address(place)
x[:] = [1, 2, 3, 4]
out = (ctypes.c_float * 4)()
assert run([tensor(place, 4)], [tensor(place, 4), tensor(ctypes.addressof(out), 4)]) == 0
said = [list(x), list(out)]
views = [Tensor(None, None, 0, 0)] * 2
wrong = [tensor(place, 5), tensor(place, 2, 2), tensor(place, -4), tensor(place, 4, type=2), tensor(None, 4)]
wrong += [Tensor(place, None, 1, 1), Tensor(place, None, -1, 1)]
for given in (*([each] for each in wrong), []):
    assert run(given, views) != 0
    said.append(lib.collage_error().decode())
print(json.dumps(said))
"""
)


@needs_compiler
def test_results_may_be_written_to_inputs_and_wrong_inputs_are_named(tmp_path: Path) -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.Tuple([builder.emit(R.add(x, x)), x]))
        builder.emit_func_output(out)
    compiled(builder.get(), ["tvm"]).save(tmp_path / "bundle", bundle=True)
    done = _run(_WRITTEN, tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        [2, 4, 6, 8],
        [1, 2, 3, 4],
        "input 'x': dimension 0 is 5, not 4",
        "input 'x': it has 2 dimensions, not 1",
        "input 'x': it has a negative extent",
        "input 'x': it has another type",
        "input 'x': it has no data",
        "input 'x': it has no shape",
        "input 'x': it has no shape",
        "the program has 1 inputs, not 0",
    ]


def test_what_is_missing_or_cut_is_one_line(bundle: Path, tmp_path: Path) -> None:
    for name, change, reason in (
        ("missing", lambda folder: (folder / "libdnnl.so.3").unlink(), "libdnnl.so.3"),
        (
            "cut",
            lambda folder: _cut(folder / "program.so"),
            "cannot be loaded as a program: its end is missing",
        ),
        ("empty", lambda folder: (folder / "bundle.json").unlink(), "this folder is not a bundle"),
    ):
        folder = tmp_path / name
        shutil.copytree(bundle, folder)
        change(folder)
        done = _called(folder, tmp_path)
        assert done.returncode == 1 and reason in done.stderr and done.stderr.count("\n") == 1, done.stderr


def _cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


@needs_compiler
def test_the_example_is_built_with_the_bundle_alone(bundle: Path, tmp_path: Path) -> None:
    program = tmp_path / "bundle"
    flags = [f"-I{bundle / 'include'}", f"-L{bundle}", "-Wl,--no-as-needed", "-lcollage_runtime", "-ltvm_ffi"]
    command = [
        "g++",
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        str(EXAMPLES / "bundle.cc"),
        "-o",
        str(program),
    ]
    subprocess.run([*command, *flags, f"-Wl,-rpath,{bundle}"], check=True)
    done = subprocess.run([program, bundle], capture_output=True, text=True, env={}, check=False)
    # It gives one input, and this program has two.
    assert done.returncode == 1 and done.stderr.startswith("bundle: ") and done.stderr.count("\n") == 1
    one = tmp_path / "one"
    compiled(_relu(), ["onednn"]).save(one, bundle=True)
    done = subprocess.run([program, one], capture_output=True, text=True, env={}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("x -> 0: 0 of 64, first 1")


@needs_compiler
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_cmake_finds_the_runtime_in_a_bundle(bundle: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    subprocess.run(
        ["cmake", "-S", EXAMPLES, "-B", build, f"-Dunity_collage_runtime_DIR={bundle}"], check=True
    )
    subprocess.run(["cmake", "--build", build], check=True)
    assert (build / "bundle").is_file()


def _relu() -> IRModule:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 16), "float32")) -> R.Tensor((4, 16), "float32"):
            with R.dataflow():
                y = R.nn.relu(x)
                R.output(y)
            return y

    return Module


@needs_compiler
def test_a_folder_with_something_in_it_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CollageError, match="it is not empty: name a new folder for the bundle"):
        compiled(_relu(), ["tvm"]).save(tmp_path, bundle=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@needs_compiler
def test_the_command_line_writes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    command = ["compile", str(tmp_path / "m.onnx"), "--no-measure", "--bundle"]
    assert cli.main([*command, str(tmp_path / "bundle")]) == 0
    assert (tmp_path / "bundle" / "bundle.json").is_file()
    assert f"wrote {tmp_path / 'bundle'}" in capsys.readouterr().out
    assert cli.main([*command, str(tmp_path / "bundle")]) == 1
    assert "cannot be written: it is not empty" in capsys.readouterr().err
    assert cli.main([*command, str(tmp_path / "none" / "bundle")]) == 1
    assert f"there is no folder {tmp_path / 'none'}" in capsys.readouterr().err


def test_the_types_have_the_numbers_of_the_header() -> None:
    """The script above writes 1 for COLLAGE_FLOAT32."""
    header = (
        Path(__file__).resolve().parents[2] / "unity_collage/runtime/include/unity_collage.h"
    ).read_text()
    names = [
        line.strip().split(" ")[0].rstrip(",")
        for line in header.splitlines()
        if line.startswith("  COLLAGE_")
    ]
    assert names[:2] == ["COLLAGE_OTHER", "COLLAGE_FLOAT32"] and ctypes.sizeof(ctypes.c_int) == 4
