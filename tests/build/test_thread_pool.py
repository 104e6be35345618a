"""TVM's parallel loops run on the OpenMP pool of the runtime, and nothing else makes a pool."""

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import ir as I
from tvm.script import tirx as T

from unity_collage import runtime
from unity_collage.runtime.threads import why_runtimes_conflict

ROWS = 8


@I.ir_module
class Kernels:
    """Parallel loops that call back, so that a test sees on which threads they run."""

    @T.prim_func
    def double(a: T.Buffer((8, 64), "float32"), b: T.Buffer((8, 64), "float32")):
        T.func_attr({"global_symbol": "double"})
        for i in T.parallel(8):
            T.evaluate(T.call_packed("collage.test.visit", i))
            for j in T.serial(64):
                b[i, j] = a[i, j] * T.float32(2)


class Visitor:
    """What the kernel calls for each row; a library looks it up once, so it stays and ``visit`` changes."""

    def __init__(self) -> None:
        self.visits: list[tuple[int, int]] = []
        self.visit: Callable[[int], None] = self.note

    def note(self, row: int) -> None:
        self.visits.append((row, threading.get_native_id()))

    def rows(self) -> list[int]:
        return sorted(row for row, _thread in self.visits)

    def threads(self) -> set[int]:
        return {thread for _row, thread in self.visits}


VISITOR = Visitor()


@pytest.fixture
def visitor() -> Visitor:
    VISITOR.__init__()
    return VISITOR


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tvm_ffi.register_global_func("collage.test.visit", lambda row: VISITOR.visit(int(row)), override=True)
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    tvm.compile(Kernels, target="llvm").export_library(str(path))
    return path


@pytest.fixture
def double(library: Path) -> tvm_ffi.Function:
    """The kernel, from a library loaded after the runtime: its parallel loops are the runtime's."""
    runtime.load("onednn")
    runtime.set_num_threads(2)
    return tvm.runtime.load_module(str(library))["double"]


def openmp_region(count: int, body: Callable[[], object]) -> None:
    """Run ``body`` on each of ``count`` threads that libgomp itself gives to a region started here."""
    (path,) = runtime.openmp_runtimes()
    region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _data: body() and None)
    ctypes.CDLL(path).GOMP_parallel(region, None, count, 0)


def openmp_threads(count: int) -> set[int]:
    seen: set[int] = set()
    openmp_region(count, lambda: seen.add(threading.get_native_id()))
    return seen


def call(kernel: tvm_ffi.Function) -> None:
    a = np.arange(ROWS * 64, dtype="float32").reshape(ROWS, 64)
    b = np.zeros_like(a)
    kernel(tvm_ffi.from_dlpack(a), tvm_ffi.from_dlpack(b))
    np.testing.assert_array_equal(b, 2 * a)


def test_a_parallel_loop_runs_on_the_threads_of_openmp(double, visitor):
    team = openmp_threads(2)
    call(double)
    assert visitor.rows() == list(range(ROWS))
    assert visitor.threads() == team
    assert len(team) == 2


@pytest.mark.parametrize("count", [1, 3])
def test_set_num_threads_reaches_generated_kernels(double, visitor, count):
    runtime.set_num_threads(count)
    call(double)
    assert len(visitor.threads()) == count


def test_an_error_in_a_worker_reaches_the_caller(double, visitor):
    def refuse(row: int) -> None:
        if row == ROWS - 1:  # the last row is a worker's, not the caller's
            raise ValueError(f"row {row} is refused")

    visitor.visit = refuse
    with pytest.raises(ValueError, match="row 7 is refused"):
        call(double)
    visitor.visit = visitor.note
    call(double)
    assert visitor.rows() == list(range(ROWS))


def test_a_loop_inside_a_parallel_region_is_serial(double, visitor):
    openmp_region(2, lambda: call(double))
    by_thread = {thread: [row for row, at in visitor.visits if at == thread] for thread in visitor.threads()}
    assert list(by_thread.values()) == [list(range(ROWS))] * 2


def test_threads_must_be_at_least_one():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        runtime.set_num_threads(0)


def test_a_second_openmp_runtime_is_a_reason():
    assert why_runtimes_conflict(["/usr/lib/libgomp.so.1"]) is None
    reason = why_runtimes_conflict(["/usr/lib/libgomp.so.1", "/opt/lib/libiomp5.so"])
    assert reason is not None
    assert reason.startswith(
        "2 OpenMP runtimes are in this process (/opt/lib/libiomp5.so, /usr/lib/libgomp.so.1)"
    )


FRESH = """
import os, sys, threading
import numpy as np, tvm, tvm_ffi
from unity_collage import runtime
runtime.load("onednn")
runtime.set_num_threads(2)
rows = []
tvm_ffi.register_global_func("collage.test.visit", lambda row: rows.append((int(row), threading.get_native_id())))
kernel = tvm.runtime.load_module(sys.argv[1])["double"]
a, b = np.ones((8, 64), "float32"), np.zeros((8, 64), "float32")
before = len(os.listdir("/proc/self/task"))
for _ in range(3):
    kernel(tvm_ffi.from_dlpack(a), tvm_ffi.from_dlpack(b))
added = len(os.listdir("/proc/self/task")) - before
compiler = [name for name in sys.modules if name.startswith("unity_collage.") and "runtime" not in name]
print(added, len({thread for _row, thread in rows}), b.sum() == 1024, compiler, runtime.why_pools_conflict())
"""


def test_an_exported_kernel_uses_the_pool_in_a_fresh_process(library):
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(library)], capture_output=True, text=True, check=True
    )
    # One thread more than before the first call is OpenMP's; a pool of TVM's would have added its own.
    assert done.stdout.split() == ["1", "2", "True", "[]", "None"]


LATE = """
from unity_collage import runtime
runtime.set_num_threads(2)
print(runtime.why_pools_conflict())
import tvm
print(runtime.why_pools_conflict())
runtime.load("onednn")
print(runtime.why_pools_conflict())
"""


def test_importing_tvm_after_the_runtime_is_noticed_and_mended_by_the_next_load():
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    first, second, third = done.stdout.splitlines()
    assert (first, third) == ("None", "None")
    assert second.startswith("TVM was imported after the runtime")
