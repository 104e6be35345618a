"""TVM's parallel loops and OpenMP regions of libraries run on the one pool, and nothing else makes a pool."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
import time
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

WAKING = 0.01
"""Seconds in which a worker wakes, on a busy machine too; a thread that is done before takes over its share."""


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
        time.sleep(WAKING)
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


OPENMP = """
#include <omp.h>
typedef void (*Body)(int place, int size);
void region(int threads, Body body) {
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
}
void region_of_all(Body body) {
#pragma omp parallel
  body(omp_get_thread_num(), omp_get_num_threads());
}
void twice(int threads, Body body) {
#pragma omp parallel num_threads(threads)
  {
    body(0, 0);
#pragma omp barrier
    body(1, 1);
  }
}
int max_threads(void) { return omp_get_max_threads(); }
// GCC calls these for some static loops and does others itself.
_Bool GOMP_loop_static_start(long, long, long, long, long*, long*);
_Bool GOMP_loop_static_next(long*, long*);
void GOMP_loop_end_nowait(void);
void shares(int threads, long start, long end, long step, long chunk, int* owner) {
#pragma omp parallel num_threads(threads)
  {
    long from, to;
    if (GOMP_loop_static_start(start, end, step, chunk, &from, &to)) {
      do {
        for (long i = from; step > 0 ? i < to : i > to; i += step) owner[i] += omp_get_thread_num() + 1;
      } while (GOMP_loop_static_next(&from, &to));
    }
    GOMP_loop_end_nowait();
  }
}
"""

DYNAMIC = """
void dynamic(int n, int* to) {
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < n; ++i) to[i] = i;
}
"""

BODY = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int)


def compiled(source: str, folder: Path) -> str:
    """A library made of C with OpenMP."""
    (folder / "source.c").write_text(source)
    command = ["gcc", "-shared", "-fPIC", "-fopenmp", "-O2", "-o", "openmp.so", "source.c"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "openmp.so")


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = compiled(OPENMP, tmp_path_factory.mktemp("openmp"))
    library = ctypes.CDLL(path)
    runtime.adopt_openmp(path)
    return library


class Team:
    """Notes who runs a region of a library."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []
        self.body = BODY(self.note)

    def note(self, place: int, size: int) -> None:
        time.sleep(WAKING)
        self.seen.append((place, size, threading.get_native_id()))

    def places(self) -> list[tuple[int, int]]:
        return sorted((place, size) for place, size, _thread in self.seen)

    def threads(self) -> set[int]:
        return {thread for _place, _size, thread in self.seen}


@pytest.fixture
def team() -> Team:
    return Team()


def call(kernel: tvm_ffi.Function) -> None:
    # TVM's own tensors: generated code relies on their alignment, which numpy's memory does not have.
    a = tvm.runtime.tensor(np.arange(ROWS * 64, dtype="float32").reshape(ROWS, 64))
    b = tvm.runtime.empty((ROWS, 64), "float32")
    kernel(a, b)
    np.testing.assert_array_equal(b.numpy(), 2 * a.numpy())


def test_a_parallel_loop_and_the_regions_of_a_library_share_threads(double, visitor, adopted, team):
    adopted.region(2, team.body)
    call(double)
    assert visitor.rows() == list(range(ROWS))
    assert visitor.threads() == team.threads()
    assert team.places() == [(0, 2), (1, 2)]


def test_a_region_that_names_no_number_gets_all_threads(double, adopted, team):
    runtime.set_num_threads(3)
    adopted.region_of_all(team.body)
    assert adopted.max_threads() == 3
    assert team.places() == [(0, 3), (1, 3), (2, 3)]


def test_a_barrier_waits_for_all(adopted):
    halves: list[int] = []
    body = BODY(lambda half, _: halves.append(half))
    for _ in range(200):
        halves.clear()
        adopted.twice(3, body)
        assert halves == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("loop", "owners"),
    [
        ((0, 7, 1, 0), [1, 1, 1, 2, 2, 3, 3]),
        ((0, 2, 1, 0), [1, 2, 0]),
        ((3, 3, 1, 0), [0, 0, 0]),
        ((0, 8, 1, 2), [1, 1, 2, 2, 3, 3, 1, 1]),
        ((1, 8, 3, 0), [0, 1, 0, 0, 2, 0, 0, 3]),
        ((6, 0, -1, 2), [0, 3, 3, 2, 2, 1, 1]),
    ],
)
def test_static_loops_are_divided_as_libgomp_divides_them(adopted, loop, owners):
    found = (ctypes.c_int * len(owners))()
    adopted.shares(3, *map(ctypes.c_long, loop), found)
    assert list(found) == owners


def test_a_region_inside_a_region_has_one_thread(adopted, team):
    adopted.region(2, BODY(lambda _place, _size: adopted.region(2, team.body)))
    assert team.places() == [(0, 1), (0, 1)]
    assert len(team.threads()) == 2
    adopted.region(2, team.body)  # and the region around it has ended
    assert team.places() == [(0, 1), (0, 1), (0, 2), (1, 2)]


def test_sleeping_workers_wake(adopted, team):
    for _ in range(3):
        time.sleep(0.02)  # they spin for a millisecond
        team.seen.clear()
        adopted.region(2, team.body)
        assert team.places() == [(0, 2), (1, 2)]


def test_a_share_that_its_worker_has_not_begun_is_taken_over(adopted):
    places: list[tuple[int, int]] = []
    for _ in range(50):
        time.sleep(0.005)  # the worker sleeps, and has not woken when the caller is done
        adopted.region(2, BODY(lambda place, _size: places.append((place, threading.get_native_id()))))
    assert sorted(place for place, _thread in places) == [0] * 50 + [1] * 50
    assert (1, threading.get_native_id()) in places


def test_regions_of_several_callers_come_one_after_the_other(adopted):
    inside, most = 0, 0
    lock = threading.Lock()

    def body(_place: int, _size: int) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.001)
        with lock:
            inside -= 1

    callback = BODY(body)
    callers = [
        threading.Thread(target=lambda: [adopted.region(2, callback) for _ in range(5)]) for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert (inside, most) == (0, 2)


def test_a_library_whose_loops_have_dynamic_schedules_is_refused(tmp_path):
    path = compiled(DYNAMIC, tmp_path)
    ctypes.CDLL(path)
    with pytest.raises(
        RuntimeError, match=r"openmp\.so needs GOMP_.*, which the one thread pool does not have"
    ):
        runtime.adopt_openmp(path)


def test_a_library_that_is_not_loaded_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.so is not loaded: load it first"):
        runtime.adopt_openmp(str(tmp_path / "nowhere.so"))


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
    for _ in range(5):  # the loop is new at first, then known to be long and cut into pieces
        with pytest.raises(ValueError, match="row 7 is refused"):
            call(double)
    visitor.visit = visitor.note
    call(double)
    assert visitor.rows() == list(range(ROWS))


def test_a_loop_inside_a_parallel_region_is_serial(double, visitor, adopted):
    adopted.region(2, BODY(lambda _place, _size: call(double)))
    by_thread = {thread: [row for row, at in visitor.visits if at == thread] for thread in visitor.threads()}
    assert list(by_thread.values()) == [list(range(ROWS))] * 2


@pytest.mark.parametrize("count", [2, 3])
def test_a_long_loop_is_done_by_whoever_is_free(double, visitor, count):
    runtime.set_num_threads(count)
    for _ in range(4):  # by now the loop is known to be long
        call(double)
    visitor.visits.clear()
    first = threading.get_native_id()

    def held_up(row: int) -> None:
        visitor.note(row)
        if threading.get_native_id() != first:
            time.sleep(0.1)

    visitor.visit = held_up
    call(double)
    assert visitor.rows() == list(range(ROWS))
    by_first = [row for row, thread in visitor.visits if thread == first]
    assert len(by_first) >= ROWS - (count - 1)  # each other thread was held up in its first row


Body = Callable[[int, int | None], int]
"""What a loop does in one task, which gets the group of its tasks for a barrier."""

LOOP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, LOOP, ctypes.c_void_p, ctypes.c_int)
BARRIER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


class Loop:
    """A loop as TVM compiles it, whose body may change."""

    def __init__(self) -> None:
        self.body: Body = lambda _task, _group: 0
        self.code = LOOP(lambda task, group, _data: self.body(task, group))

    @property
    def entry(self) -> int:
        """Its number in the table of parallel_loops.cc."""
        address = ctypes.cast(self.code, ctypes.c_void_p).value or 0
        return (address >> 4 ^ address >> 16) % 4096


def two_of_one_entry() -> tuple[Loop, Loop]:
    found: dict[int, Loop] = {}
    while (loop := Loop()).entry not in found:
        found[loop.entry] = loop
    return found[loop.entry], loop


def test_a_loop_with_a_barrier_never_has_one_thread(double, tmp_path):
    """Not even if another loop, whose code has the same entry in the table of loops, ends while it runs."""
    path = compiled("void *__TVMBackendParallelLaunch, *__TVMBackendParallelBarrier;", tmp_path)
    _held, code = tvm.runtime.load_module(path), ctypes.CDLL(path)
    launch = LAUNCH(ctypes.c_void_p.in_dll(code, "__TVMBackendParallelLaunch").value)
    barrier = BARRIER(ctypes.c_void_p.in_dll(code, "__TVMBackendParallelBarrier").value)
    plain, waiting = two_of_one_entry()
    began, results = threading.Semaphore(0), list[int]()
    may_end, may_wait = threading.Event(), threading.Event()

    def until_told(_task: int, _group: int | None) -> int:
        began.release()
        return int(not may_end.wait(10))

    def meanwhile(task: int, group: int | None) -> int:
        if task == 0:
            waiting.body = barrier
            may_end.set()
            for thread in others:
                thread.join()
            second.start()
            second.join(0.2)  # it waits for the threads of this one, unless it does without them
            may_wait.set()
        may_wait.wait(10)
        return barrier(task, group)

    plain.body, waiting.body = until_told, meanwhile
    others = [threading.Thread(target=launch, args=(plain.code, None, 1)) for _ in range(3)]
    second = threading.Thread(target=lambda: results.append(launch(waiting.code, None, 2)))
    for thread in others:
        thread.start()
        began.acquire()
    assert launch(waiting.code, None, 2) == 0
    second.join()
    assert results == [0]


def test_threads_must_be_at_least_one():
    with pytest.raises(ValueError, match="from 1 to 1024, not 0"):
        runtime.set_num_threads(0)


def test_a_second_openmp_runtime_is_a_reason():
    assert why_runtimes_conflict(["/usr/lib/libgomp.so.1"]) is None
    assert why_runtimes_conflict(["/usr/lib/libgomp.so.1", "/opt/mnn.libs/libgomp-1.so"]) is None
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


@pytest.mark.parametrize(
    ("environment", "threads"),
    [({"OMP_NUM_THREADS": "3,2"}, "3"), ({"TVM_NUM_THREADS": "4", "OMP_NUM_THREADS": "3"}, "4")],
)
def test_the_environment_gives_the_first_number_of_threads(environment: dict[str, str], threads: str):
    ask = "from unity_collage import runtime; print(runtime.num_threads())"
    assert python(ask, **environment) == threads


ONE_CORE = """
import os
for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.pop(name, None)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from unity_collage import runtime
print(runtime.num_threads())
"""


def test_the_number_of_threads_is_at_first_the_cores_this_process_may_use():
    assert python(ONE_CORE) == "1"


FORK = """
import os, tvm_ffi
from unity_collage import runtime
runtime.set_num_threads(2)
write = tvm_ffi.get_global_func("collage.runtime.nothing")
import numpy as np
def busy():
    x = tvm_ffi.from_dlpack(np.zeros(1024, "float32"))
    return len(runtime.measure(write, [], warm=[x], warmup_seconds=0.0, min_runs=2, max_runs=2))
before = busy()
child = os.fork()
if child == 0:
    os._exit(busy())
print(before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_a_team_of_its_own():
    assert python(FORK).split() == ["2", "2"]


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
import os, sys, threading, time
import numpy as np, tvm, tvm_ffi
from unity_collage import runtime
runtime.load("onednn")
runtime.set_num_threads(2)
rows = []
def visit(row):
    time.sleep(0.01)
    rows.append((int(row), threading.get_native_id()))
tvm_ffi.register_global_func("collage.test.visit", visit)
kernel = tvm.runtime.load_module(sys.argv[1])["double"]
a, b = tvm.runtime.tensor(np.ones((8, 64), "float32")), tvm.runtime.empty((8, 64), "float32")
before = len(os.listdir("/proc/self/task"))
for _ in range(3):
    kernel(a, b)
added = len(os.listdir("/proc/self/task")) - before
loaded_by_all = ("unity_collage.tvm_plugin", "unity_collage.ffi")
ours = [name for name in sys.modules if name.startswith("unity_collage.") and name not in loaded_by_all]
compiler = [name for name in ours if "runtime" not in name]
print(added, len({thread for _row, thread in rows}), b.numpy().sum() == 1024, compiler, runtime.why_pools_conflict())
"""


def test_an_exported_kernel_uses_the_pool_in_a_fresh_process(library):
    # One thread more than before the first call is the pool's; a pool of TVM's would have added its own.
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
