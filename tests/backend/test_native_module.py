"""What modules of the native runtime promise whatever the library: saving, sharing, checking, timing."""

import json
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
import tvm
import tvm_ffi
from c_memory import counted, in_use
from native_program import Program, channels_last, create, random, run, seen_as

from unity_collage import runtime
from unity_collage.runtime.vendors import VENDORS, Vendor


@pytest.fixture(params=["onednn", "openblas"])
def backend(request: pytest.FixtureRequest) -> str:
    if reason := runtime.why_unavailable(request.param):
        pytest.skip(reason)
    return request.param


def product(backend: str, rows: int = 7, name: str = "main") -> Program:
    """rows x 24 times a constant 24 x 10."""
    program = Program(name)
    left, right, result = program.input(rows, 24), program.constant(random(24, 10)), program.output(rows, 10)
    if backend == "onednn":
        return program.step("matmul", {"src": left, "weights": right, "dst": result})
    return program.step("gemm", {"a": left, "b": right, "c": result})


def saved(program: Program) -> bytes:
    """The bytes of a module as docs/runtime.md describes them."""
    text = json.dumps({"programs": [program.text]}).encode()
    return struct.pack("<Q", len(text)) + text + program.blob


def load_saved(backend: str, content: bytes) -> tvm_ffi.Module:
    runtime.load(backend)
    return tvm_ffi.get_global_func(f"ffi.Module.load_from_bytes.collage.{backend}")(content)


def test_a_saved_module_is_the_same_module(backend):
    module = product(backend).create(backend)
    loaded = tvm.ir.load_json(tvm.ir.save_json(module))
    x = random(7, 24, seed=1)
    np.testing.assert_array_equal(run(loaded, x, out=(7, 10)), run(module, x, out=(7, 10)))
    assert tvm.ir.save_json(loaded) == tvm.ir.save_json(module)


def test_the_saved_bytes_are_as_documented(backend):
    x = random(7, 24, seed=1)
    result = run(load_saved(backend, saved(product(backend))), x, out=(7, 10))
    np.testing.assert_allclose(result, x @ random(24, 10), rtol=1e-4, atol=1e-5)


def test_kind_and_properties(backend):
    module = product(backend).create(backend)
    assert module.kind == f"collage.{backend}"
    assert module.get_property_mask() == 0b011


def test_programs_of_a_module_share_the_blob(backend):
    small, large = product(backend, 2, "small"), product(backend, 9, "large")
    module = create(backend, {"programs": [small.text, large.text]}, small.blob)
    for name, rows in (("small", 2), ("large", 9)):
        x = random(rows, 24, seed=1)
        result = run(module, x, out=(rows, 10), name=name)
        np.testing.assert_allclose(result, x @ random(24, 10), rtol=1e-4, atol=1e-5)
    assert not module.implements_function("main")


def test_a_function_outlives_its_module(backend):
    function = product(backend).create(backend).get_function("main")
    x, out = random(7, 24, seed=1), np.zeros((7, 10), "float32")
    function(tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(out))
    np.testing.assert_allclose(out, x @ random(24, 10), rtol=1e-4, atol=1e-5)


def test_two_threads_call_one_function(backend):
    function = chain(backend).create(backend).get_function("main")
    weights, wrong = random(64, 64), []

    def work(seed: int) -> None:
        x, out = random(64, 64, seed=seed), np.zeros((64, 64), "float32")
        for _ in range(50):
            function(tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(out))
            if not np.allclose(out, x @ weights @ weights, rtol=1e-3, atol=1e-2):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def chain(backend: str) -> Program:
    """Two products through a temporary, so that calls which shared a state would spoil each other's."""
    program = Program()
    left, between, result = program.input(64, 64), program.temporary(64, 64), program.output(64, 64)
    right = program.constant(random(64, 64))
    a, b, c, primitive = (
        ("src", "weights", "dst", "matmul") if backend == "onednn" else ("a", "b", "c", "gemm")
    )
    program.step(primitive, {a: left, b: right, c: between})
    return program.step(primitive, {a: between, b: right, c: result})


def test_the_number_of_threads_may_change_between_calls(backend):
    module = chain(backend).create(backend)
    x, before = random(64, 64, seed=1), runtime.num_threads()
    for threads in (1, 3, 2, 1):
        runtime.set_num_threads(threads)
        expected = x @ random(64, 64) @ random(64, 64)
        np.testing.assert_allclose(run(module, x, out=(64, 64)), expected, rtol=1e-3, atol=1e-2)
    runtime.set_num_threads(before)


WORKERS = """
import os, sys
import numpy as np, tvm_ffi
from unity_collage import runtime
backend, text = sys.argv[1:]
runtime.load(backend)
runtime.set_num_threads(2)
main = tvm_ffi.get_global_func(f"collage.{backend}.create")(text, b"").get_function("main")
x, y = np.eye(512, dtype="float32"), np.empty((512, 512), "float32")
before = len(os.listdir("/proc/self/task"))
main(*map(tvm_ffi.from_dlpack, (x, x, y)))
print(len(os.listdir("/proc/self/task")) - before, bool((x == y).all()), runtime.num_threads())
"""


@pytest.mark.parametrize(("threads", "workers"), [(None, 1), (1, 0), (2, 1), (9, 1)])
def test_a_program_has_the_threads_that_it_asks_for(backend: str, threads: int | None, workers: int):
    """All but one of its threads are workers of the pool, which starts with the first call."""
    program = Program()
    left, right, result = program.input(512, 512), program.input(512, 512), program.output(512, 512)
    names = ("src", "weights", "dst") if backend == "onednn" else ("a", "b", "c")
    args = dict(zip(names, (left, right, result), strict=True))
    program.step("matmul" if backend == "onednn" else "gemm", args)
    if threads is not None:
        program.text["threads"] = threads
    command = [sys.executable, "-c", WORKERS, backend, json.dumps({"programs": [program.text]})]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(workers), "True", "2"]


def test_implementations_name_each_step(backend):
    lines = chain(backend).create(backend).inspect_source("implementations").splitlines()
    primitive = "matmul" if backend == "onednn" else "gemm"
    assert lines[0] == "main"
    assert [line.split(":")[0] for line in lines[1:]] == [f"  step {i} ({primitive})" for i in (0, 1)]


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ([(7, 24)], "main takes 2 tensors, not 1"),
        ([(7, 24), (7, 11)], "argument 1 has 308 bytes, not 280"),
        ([(7, 24), (7, 10, "float16")], "argument 1 is float16, not float32"),
    ],
)
def test_a_wrong_call_says_which_argument(backend, tensors, reason):
    function = product(backend).create(backend).get_function("main")
    arrays = [np.zeros(shape[:2], shape[2] if len(shape) > 2 else "float32") for shape in tensors]
    with pytest.raises((ValueError, TypeError), match=reason):
        function(*[tvm_ffi.from_dlpack(array) for array in arrays])


def test_a_strided_tensor_is_refused(backend):
    function = product(backend).create(backend).get_function("main")
    strided = np.zeros((24, 7), "float32").T
    with pytest.raises(ValueError, match="argument 0 is not contiguous"):
        function(tvm_ffi.from_dlpack(strided), tvm_ffi.from_dlpack(np.zeros((7, 10), "float32")))


def test_something_else_than_a_tensor_is_refused(backend):
    function = product(backend).create(backend).get_function("main")
    with pytest.raises(ValueError, match="argument 0 is not a tensor"):
        function(1, 2)


BROKEN = {
    "an unknown primitive": (lambda p: p.step("fft", {}), r"main, step 0 \(fft\): .* has no primitive 'fft'"),
    "a view outside its buffer": (
        lambda p: p.step("gemm", {"a": seen_as(p.input(2, 2), [2, 3], [3, 1])}),
        "main: step 0: a view ends at byte 24 of buffer 0, which has 16",
    ),
    "a result in an input": (lambda p: p.step("gemm", {"c": p.input(2, 2)}), "main: step 0: 'c' is an input"),
    "a result in a constant": (
        lambda p: p.step("reorder", {"dst": p.constant(random(2, 2))}),
        "main: step 0: 'dst' is a constant",
    ),
    "a missing key": (lambda p: p.text.pop("inputs"), "main: 'inputs' is missing"),
    "threads that cannot be": (lambda p: p.text.update(threads=-1), "main: it has -1 threads"),
    "a wrong type": (lambda p: p.text.update(outputs="x"), "main: 'outputs' has the wrong type"),
    "a buffer that is not there": (
        lambda p: p.text.update(outputs=[3]),
        "main: there is no buffer 3 among 0",
    ),
    "a constant outside the blob": (
        lambda p: (p.constant(random(2, 2)), p.text["constants"][0].update(offset=64)),
        "main: constant buffer 0 .16 bytes at 64. does not fit the blob of 16 bytes",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_program_is_refused_where_it_breaks(backend, case):
    spoil, reason = BROKEN[case]
    program = Program()
    spoil(program)
    with pytest.raises((ValueError, TypeError, IndexError), match=reason):
        program.create(backend)


def test_text_that_is_no_json(backend):
    runtime.load(backend)
    with pytest.raises(ValueError, match="Expecting property name"):
        tvm_ffi.get_global_func(f"collage.{backend}.create")("{", b"")


@pytest.mark.parametrize("length", [0, 7, 20])
def test_cut_bytes_are_refused(backend, length):
    with pytest.raises(ValueError, match=f"the saved collage.{backend} module is truncated"):
        load_saved(backend, saved(product(backend))[:length])


def test_measure_returns_the_seconds_of_each_run(backend):
    function = product(backend).create(backend).get_function("main")
    tensors = [tvm_ffi.from_dlpack(random(7, 24)), tvm_ffi.from_dlpack(np.zeros((7, 10), "float32"))]
    exact = {"min_runs": 6, "max_runs": 6, "min_seconds": 0.0, "warmup_seconds": 0.0}
    for options in ({}, {"evict_bytes": 1 << 20, "warm": tensors[:1]}, {"calls_per_run": 3}):
        seconds = runtime.measure(function, tensors, **exact, **options)
        assert len(seconds) == 6
        assert all(0 < value < 1 for value in seconds)


def test_measure_passes_the_error_of_the_function_on(backend):
    function = product(backend).create(backend).get_function("main")
    with pytest.raises(TypeError, match="main takes 2 tensors, not 0"):
        runtime.measure(function, [])


def test_why_unavailable_names_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    assert "there is no native backend 'mkl'" in str(runtime.why_unavailable("mkl"))
    monkeypatch.setitem(VENDORS, "onednn", Vendor("no-such-wheel", "libdnnl.so.3"))
    assert runtime.why_unavailable("onednn") == "libdnnl.so.3 is missing: pip install no-such-wheel"
    with pytest.raises(RuntimeError, match=r"cannot load onednn: libdnnl\.so\.3 is missing"):
        runtime.load("onednn")
    assert runtime.library_version("onednn") is None


def test_versions_are_told(backend):
    assert runtime.library_version(backend)
    described = runtime.describe(backend)
    assert described.lower().startswith(backend)


def convolution(backend: str, seed: int) -> Program:
    """256 to 512 channels, 3x3, whose weights both backends pack."""
    program = Program()
    src, dst = program.input(1, 256, 14, 14), program.output(1, 512, 14, 14)
    weights = program.constant(random(512, 256, 3, 3, seed=seed))
    src["strides"], dst["strides"] = channels_last((1, 256, 14, 14)), channels_last((1, 512, 14, 14))
    name = "convolution" if backend == "onednn" else "winograd"
    tile = {} if backend == "onednn" else {"tile": 4}
    window = {"strides": [1, 1], "padding_l": [1, 1], "padding_r": [1, 1], "dilates": [0, 0]}
    return program.step(name, {"src": src, "weights": weights, "dst": dst}, **window, **tile)


@pytest.mark.parametrize("backend", ["onednn", "kernels"])
@counted
def test_as_many_bytes_are_packed_as_the_module_tells(backend):
    if reason := runtime.why_unavailable(backend):
        pytest.skip(reason)
    convolution(backend, 0).create(backend)  # libraries keep memory of their own from the first use on
    program = convolution(backend, 1)
    before = in_use()
    module = program.create(backend)
    held = in_use() - before
    name, packed, workspace = str(module.inspect_source("memory")).split()
    assert name == "main" and int(packed) >= 512 * 256 * 9 * 4 and int(workspace) > 0
    assert held == pytest.approx(len(program.blob) + int(packed), rel=0.02)


def test_a_packed_copy_is_told_for_any_number_of_threads():
    if reason := runtime.why_unavailable("kernels"):
        pytest.skip(reason)
    module, threads = convolution("kernels", 1).create("kernels"), runtime.num_threads()
    _name, packed, _workspace = str(module.inspect_source("memory")).split()
    runtime.set_num_threads(threads + 1)
    try:
        _name, again, _workspace = str(module.inspect_source("memory")).split()
        assert int(again) == pytest.approx(int(packed), rel=0.01)
    finally:
        runtime.set_num_threads(threads)


def test_weights_that_are_read_as_they_are_have_no_copy():
    module = product("openblas").create("openblas")
    assert str(module.inspect_source("memory")) == "main 0 0\n"
