"""Single kernels of XNNPACK by its subgraph interface, which ExecuTorch's wheel exports; called by ctypes.

Only what ``xnnpack.py`` asks of it. The functions' meaning is in ``xnnpack.h``; operators that it calls deprecated are
used where the present ones name an operation by a number that differs from version to version. The one number that is
left, a mean's, is checked as every result is.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from ctypes import c_float, c_int32, c_size_t, c_uint32, c_void_p
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

_FLOAT32, _INPUT, _OUTPUT, _NOBODY = 1, 1, 2, 0xFFFFFFFF
_TRANSPOSED_WEIGHTS = 1
_MEAN = 2
_RUNS = 10

Graph = Any
Define = Callable[[Graph, list[int], list[int], int], int]
"""Adds an operator that makes the last value of the first, inputs and weights, to a graph; its status."""


class Library:
    """XNNPACK and a pool of ``threads`` threads."""

    def __init__(self, threads: int):
        found = find_spec("executorch")
        if found is None or not found.submodule_search_locations:
            raise SystemExit("XNNPACK is missing: pip install --no-deps executorch==1.5.1")
        folder = Path(found.submodule_search_locations[0]) / "lib"
        pools = ctypes.CDLL(str(folder / "libexecutorch_threadpool.so"), mode=ctypes.RTLD_GLOBAL)
        self.call = ctypes.CDLL(str(folder / "libexecutorch_backend_xnnpack.so"), mode=ctypes.RTLD_GLOBAL)
        pools.pthreadpool_create.restype = c_void_p
        self.pool = c_void_p(pools.pthreadpool_create(c_size_t(threads)))
        _checked("xnn_initialize", self.call.xnn_initialize(None))


class _External(ctypes.Structure):
    _fields_ = [("id", c_uint32), ("data", c_void_p)]


class Kernel:
    """One operator, ready to run on ``inputs``."""

    def __init__(
        self, library: Library, inputs: Sequence[np.ndarray], weights: Sequence[np.ndarray],
        result: Sequence[int], define: Callable[[Any], Define],
    ):  # fmt: skip
        self._call, graph = library.call, c_void_p()
        self._memory = [*inputs, *weights]
        self._result = np.zeros(result, "float32")
        _checked(
            "subgraph", self._call.xnn_create_subgraph(c_uint32(len(inputs) + 1), 0, ctypes.byref(graph))
        )
        sources = [self._value(graph, array, i, _INPUT) for i, array in enumerate(inputs)]
        constants = [self._value(graph, array, _NOBODY, 0, array.ctypes.data) for array in weights]
        made = self._value(graph, self._result, len(inputs), _OUTPUT)
        _checked("operator", define(self._call)(graph, sources, constants, made))
        self._runtime = c_void_p()
        create = self._call.xnn_create_runtime_v2
        _checked("runtime", create(graph, library.pool, 0, ctypes.byref(self._runtime)))
        _checked("reshape", self._call.xnn_reshape_runtime(self._runtime))
        pointers = [
            *enumerate(array.ctypes.data for array in inputs),
            (len(inputs), self._result.ctypes.data),
        ]
        table = (_External * len(pointers))(*(_External(i, data) for i, data in pointers))
        _checked("setup", self._call.xnn_setup_runtime_v2(self._runtime, c_size_t(len(pointers)), table))

    def result(self) -> np.ndarray:
        """What it computes."""
        _checked("invoke", self._call.xnn_invoke_runtime(self._runtime))
        return self._result

    def timed(self, seconds: float) -> float:
        """The median seconds of a run; a call from Python is 0.1 us of it."""
        invoke, runtime, found = self._call.xnn_invoke_runtime, self._runtime, []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(found) < 5:
            begin = time.perf_counter()
            for _ in range(_RUNS):
                invoke(runtime)
            found.append((time.perf_counter() - begin) / _RUNS)
        return float(np.median(found))

    def _value(
        self, graph: Graph, array: np.ndarray, number: int, flags: int, data: int | None = None
    ) -> int:
        made = c_uint32()
        dims = sizes(array.shape)
        status = self._call.xnn_define_tensor_value(
            graph, _FLOAT32, c_size_t(array.ndim), dims, c_void_p(data), c_uint32(number), c_uint32(flags),
            ctypes.byref(made),
        )  # fmt: skip
        _checked("value", status)
        return made.value


def sizes(numbers: Sequence[int]) -> Any:
    """An array of ``size_t``."""
    return (c_size_t * len(numbers))(*numbers)


def unary(name: str) -> Callable[[Any], Define]:
    return lambda call: lambda g, x, _w, y: getattr(call, f"xnn_define_{name}")(g, x[0], y, 0)


def sum_and_relu(call: Any) -> Define:
    return lambda g, x, _w, y: call.xnn_define_add2(g, c_float(0), c_float(inf), *x, y, 0)


def mean(*axes: int) -> Callable[[Any], Define]:
    along = (ctypes.c_int64 * len(axes))(*axes)
    return lambda call: (
        lambda g, x, _w, y: call.xnn_define_static_reduce_v2(g, _MEAN, c_size_t(len(axes)), along, x[0], y, 0)
    )


def concatenation(axis: int) -> Callable[[Any], Define]:
    return lambda call: (
        lambda g, x, _w, y: call.xnn_define_concatenate(
            g, c_int32(axis), c_size_t(len(x)), (c_uint32 * len(x))(*x), y, 0
        )
    )


def permutation(*order: int) -> Callable[[Any], Define]:
    return lambda call: (
        lambda g, x, _w, y: call.xnn_define_static_transpose(
            g, c_size_t(len(order)), sizes(order), x[0], y, 0
        )
    )


def max_pool(call: Any) -> Define:
    window = (1, 1, 1, 1, 3, 3, 2, 2, 1, 1)
    return lambda g, x, _w, y: call.xnn_define_max_pooling_2d(
        g, *window, c_float(-inf), c_float(inf), x[0], y, 0
    )


def average_pool(call: Any) -> Define:
    window = (1, 1, 1, 1, 3, 3, 1, 1)
    return lambda g, x, _w, y: call.xnn_define_average_pooling_2d(
        g, *window, c_float(-inf), c_float(inf), x[0], y, 0
    )


def product(call: Any) -> Define:
    return lambda g, x, w, y: call.xnn_define_fully_connected(
        g, c_float(-inf), c_float(inf), x[0], w[0], c_uint32(_NOBODY), y, _TRANSPOSED_WEIGHTS
    )


def convolution(taps: int, stride: int, groups: int, channels: int, results: int) -> Callable[[Any], Define]:
    """relu(conv2d + bias), padded so that each stride has a result."""
    before, behind = (taps - 1) // 2, taps // 2
    window = (before, behind, behind, before, taps, taps, stride, stride, 1, 1)
    each = (c_size_t(channels // groups), c_size_t(results // groups))
    return lambda call: (
        lambda g, x, w, y: call.xnn_define_convolution_2d(
            g, *window, groups, *each, c_float(0), c_float(inf), x[0], *w, y, 0
        )
    )


def depthwise(taps: int, channels: int) -> Callable[[Any], Define]:
    window = (taps // 2,) * 4 + (taps, taps, 1, 1, 1, 1)
    return lambda call: (
        lambda g, x, w, y: call.xnn_define_depthwise_convolution_2d(
            g, *window, 1, c_size_t(channels), c_float(0), c_float(inf), x[0], *w, y, 0
        )
    )


def _checked(what: str, status: int) -> None:
    if status != 0:
        raise RuntimeError(f"XNNPACK's {what} has status {status}")
