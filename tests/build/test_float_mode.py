"""The floating-point mode of the calling thread and of the others of the pool."""

from __future__ import annotations

import ctypes
import platform
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.ir import IRModule
from tvm.script import tirx as T

from unity_collage import runtime

DOWNWARD = 0x800000 if platform.machine() == "aarch64" else 0x400
TO_NEAREST = 0
LIBM = ctypes.CDLL("libm.so.6")


@T.prim_func(s_tir=True)
def parallel(a: T.Buffer((2,), "float32")):
    T.func_attr({"global_symbol": "parallel"})
    for i in T.parallel(2):
        T.evaluate(T.call_packed("collage.test.float_mode"))
        a[i] = T.float32(0)


@pytest.fixture
def own() -> Iterator[int]:
    """The mode of this thread, on a pool of two threads."""
    threads, mode = runtime.num_threads(), runtime.float_mode()
    runtime.set_num_threads(2)
    yield mode
    LIBM.fesetround(TO_NEAREST)  # the x87 too, which prints numbers and has no part in the mode of kernels
    runtime.restore_float_mode(mode)
    runtime.set_num_threads(threads)


def test_a_mode_of_this_thread_is_seen_and_restored(own: int) -> None:
    assert not runtime.restore_float_mode(own)
    LIBM.fesetround(DOWNWARD)
    assert runtime.float_mode() != own and 1.0 - 2.0**-60 < 1.0
    assert runtime.restore_float_mode(own)
    assert runtime.float_mode() == own and 1.0 - 2.0**-60 == 1.0


def test_a_mode_of_another_thread_of_the_pool_is_seen_and_restored(own: int) -> None:
    runtime.load("openblas")  # from now on parallel loops of TVM run on the pool
    changed: set[int] = set()

    def change() -> None:
        time.sleep(0.01)  # until the other thread has woken
        if threading.current_thread() is not threading.main_thread():
            LIBM.fesetround(DOWNWARD)
            changed.add(threading.get_native_id())

    tvm_ffi.register_global_func("collage.test.float_mode", change, override=True)
    kernel = tvm.compile(IRModule({"parallel": parallel}), target="llvm")
    runtime.restore_float_mode(own)  # starts the other thread
    until = time.monotonic() + 60.0
    while not changed and time.monotonic() < until:  # on a busy machine this thread runs both parts
        kernel["parallel"](tvm.runtime.tensor(np.zeros(2, np.float32)))
    assert changed and runtime.float_mode() == own
    assert runtime.restore_float_mode(own)
    assert not runtime.restore_float_mode(own)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no mode is known for it")
def test_denormals_count_as_zero_until_they_no_longer_do(own: int) -> None:
    tiny = np.full(64, 1e-20, np.float32)
    assert runtime.flush_denormals() and (tiny * tiny == 0).all()
    assert runtime.restore_float_mode(own), "all threads had the other mode"
    assert runtime.flush_denormals() and runtime.flush_denormals(False)
    assert runtime.float_mode() == own and (tiny * tiny > 0).all()
