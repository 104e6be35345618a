"""Several callers of one native function: each size is compiled once, and only its own callers wait for it.

A run uses at most the threads that its program was compiled for.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi

from unity_collage.runtime import libraries, num_threads, set_num_threads

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "unity_collage" / "runtime" / "src"
PROGRAM = {
    "name": "main",
    "buffers": [{"nbytes": {"terms": [[4, "n.0"]]}, "dtype": "float32"}],
    "inputs": [0],
    "outputs": [],
    "constants": [],
    "steps": [],
    "sizes": {"n.0": {"argument": 0, "axis": 0}},
}
LIMIT = 20
"""Seconds after which a caller counts as blocked."""

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loads the backend."""
    libraries.load_base()
    base = libraries.own_library("runtime")
    assert base is not None
    ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    library = tmp_path_factory.mktemp("gated") / "gated.so"
    headers = [f"-I{SOURCES}", *(f"-isystem{path}" for path in tvm_ffi.libinfo.include_paths())]
    command = ["g++", "-std=c++17", "-shared", "-fPIC", str(HERE / "gated_backend.cc"), "-o", str(library)]
    subprocess.run([*command, *headers, str(base), str(ffi)], check=True)
    ctypes.CDLL(str(library))


def test_callers_wait_only_for_the_size_that_they_call(gated: None) -> None:
    set_open, begun, create = (
        tvm_ffi.get_global_func(f"collage.gated.{name}") for name in ("set_open", "begun", "create")
    )
    main = create(json.dumps({"programs": [PROGRAM]}), b"").get_function("main")

    def call(size: int) -> None:
        main(tvm_ffi.from_dlpack(np.zeros(size, "float32")))

    call(1)
    set_open(False)
    with ThreadPoolExecutor() as pool:
        try:
            first, second = pool.submit(call, 2), pool.submit(call, 2)
            end = time.monotonic() + LIMIT
            while begun() < 2 and time.monotonic() < end:
                time.sleep(0.01)
            pool.submit(call, 1).result(LIMIT)
            assert not first.done() and not second.done()
        finally:
            set_open(True)
        first.result(LIMIT)
        second.result(LIMIT)
    assert begun() == 2


def test_a_forked_process_does_not_wait_for_a_size_that_its_parent_compiles(gated: None) -> None:
    set_open, open_soon, begun, create = (
        tvm_ffi.get_global_func(f"collage.gated.{name}")
        for name in ("set_open", "open_soon", "begun", "create")
    )
    main = create(json.dumps({"programs": [PROGRAM]}), b"").get_function("main")
    value = tvm_ffi.from_dlpack(np.zeros(2, "float32"))
    before = begun()
    set_open(False)
    with ThreadPoolExecutor() as pool:
        compiling = pool.submit(main, value)
        end = time.monotonic() + LIMIT
        while begun() == before and time.monotonic() < end:
            time.sleep(0.01)
        open_soon(0.2)
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            try:
                main(value)
                os._exit(0)
            finally:
                os._exit(1)
        compiling.result(LIMIT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_more_threads_are_used_from_the_next_call_on(gated: None) -> None:
    allow, used, create = (
        tvm_ffi.get_global_func(f"collage.gated.{name}") for name in ("allow_in_run", "used_in_run", "create")
    )
    main = create(json.dumps({"programs": [PROGRAM]}), b"").get_function("main")
    before = num_threads()
    try:
        set_num_threads(2)
        allow(5)
        for expected in (2, 5):
            main(tvm_ffi.from_dlpack(np.zeros(1, "float32")))
            assert used() == expected
    finally:
        allow(0)
        set_num_threads(before)
