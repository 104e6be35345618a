"""TVM's parallel loops run on the OpenMP pool of the runtime, and nothing else makes a pool."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
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
def double(library: Path) -> Iterator[tvm_ffi.Function]:
    """The kernel, from a library loaded after the runtime: its parallel loops are the runtime's."""
    runtime.load("onednn")
    before = runtime.num_threads()
    runtime.set_num_threads(2)
    yield tvm.runtime.load_module(str(library))["double"]
    runtime.set_num_threads(before)


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
    # TVM's own tensors: generated code relies on their alignment, which numpy's memory does not have.
    a = tvm.runtime.tensor(np.arange(ROWS * 64, dtype="float32").reshape(ROWS, 64))
    b = tvm.runtime.empty((ROWS, 64), "float32")
    kernel(a, b)
    np.testing.assert_array_equal(b.numpy(), 2 * a.numpy())


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


def python(script: str, *args: str, **environment: str) -> str:
    """What ``script`` prints in a process of its own."""
    command = [sys.executable, "-c", script, *args]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | environment
    ).stdout.strip()


def test_omp_num_threads_is_the_first_number_of_threads():
    ask = "from unity_collage import runtime; print(runtime.num_threads())"
    assert python(ask, OMP_NUM_THREADS="3") == "3"


ONE_CORE = """
import os
os.environ.pop("OMP_NUM_THREADS", None)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from unity_collage import runtime
print(runtime.num_threads())
"""


def test_the_number_of_threads_is_at_first_the_cores_this_process_may_use():
    assert python(ONE_CORE) == "1"


TWO = """
import ctypes, sys
from unity_collage import runtime
runtime.load("onednn")
ctypes.CDLL(sys.argv[1])
print(runtime.why_pools_conflict())
"""


def test_a_copy_of_libgomp_in_the_process_is_found(tmp_path):
    (path,) = runtime.openmp_runtimes()
    copy = shutil.copy(path, tmp_path / "libgomp-1234.so.1.0.0")
    assert python(TWO, str(copy)).startswith("2 OpenMP runtimes are in this process")


FRESH = """
import os, sys, threading
import numpy as np, tvm, tvm_ffi
from unity_collage import runtime
runtime.load("onednn")
runtime.set_num_threads(2)
rows = []
tvm_ffi.register_global_func("collage.test.visit", lambda row: rows.append((int(row), threading.get_native_id())))
kernel = tvm.runtime.load_module(sys.argv[1])["double"]
a, b = tvm.runtime.tensor(np.ones((8, 64), "float32")), tvm.runtime.empty((8, 64), "float32")
before = len(os.listdir("/proc/self/task"))
for _ in range(3):
    kernel(a, b)
added = len(os.listdir("/proc/self/task")) - before
compiler = [name for name in sys.modules if name.startswith("unity_collage.") and "runtime" not in name]
print(added, len({thread for _row, thread in rows}), b.numpy().sum() == 1024, compiler, runtime.why_pools_conflict())
"""


def test_an_exported_kernel_uses_the_pool_in_a_fresh_process(library):
    # One thread more than before the first call is OpenMP's; a pool of TVM's would have added its own.
    assert python(FRESH, str(library)).split() == ["1", "2", "True", "[]", "None"]


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
    first, second, third = python(LATE).splitlines()
    assert (first, third) == ("None", "None")
    assert second.startswith("TVM was imported after the runtime")
