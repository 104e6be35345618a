"""The worker process: builds, checks and times one kernel at a time, so that a crash costs one kernel.

Started as ``python -m unity_collage.cost.worker FD``. Requests and replies are JSON lines on a socket at
file descriptor FD; standard output stays free for what libraries print.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.target import Target

from .. import runtime
from ..backends.registry import get
from .caches import evict_bytes
from .inputs import random_inputs
from .kernels import activation_tensors, build_kernel, expected_outputs, output_tensors, why_wrong
from .launch import launch_seconds
from .method import Method

TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2, "float64": 1e-6}
"""Largest error of an output over its range, by dtype; 0 for integers."""


_SLOW_BYTES = 16 << 20
"""Streaming over so much memory takes milliseconds, more than most kernels: no more runs than needed."""


class Worker:
    """Answers requests; keeps the last reference, since candidates of one computation come together."""

    def __init__(self, threads: int, method: Method):
        runtime.set_num_threads(threads)
        self._method = method
        self._digest = ""
        self._arrays: list[np.ndarray] = []
        self._expected: list[np.ndarray] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request: a price, or ``{"reason": ...}``."""
        try:
            if request["ask"] == "launch":
                return {"seconds": launch_seconds(Target(json.loads(request["target"])))}
            return self._price(request)
        except Exception as error:  # a foreign compiler or kernel failed: that is the answer
            return {"reason": f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"}

    def _price(self, request: dict[str, Any]) -> dict[str, Any]:
        func = tvm.ir.load_json(request["function"])
        backend, target = get(request["backend"]), Target(json.loads(request["target"]))
        if request["digest"] != self._digest:
            self._arrays = random_inputs(func)
            self._expected = expected_outputs(func, self._arrays)
            self._digest = request["digest"]
        kernel, constants = build_kernel(func, self._arrays, backend, target)
        activations, outputs = activation_tensors(func, self._arrays), output_tensors(func)
        kernel(*activations, *constants, *outputs)
        reason = why_wrong([o.numpy() for o in outputs], self._expected, _tolerance(func))
        if reason is not None:
            return {"reason": reason}
        args, warm = [*activations, *constants, *outputs], [*activations, *outputs]
        return self._time(kernel, args, warm, request["weights_in"])

    def _time(self, kernel: Any, args: list[Any], warm: list[Any], weights_in: str) -> dict[str, Any]:
        """Median seconds of a run, the middle half, and how many runs."""
        evict, method = evict_bytes(weights_in), self._method
        seconds = runtime.measure(
            kernel,
            args,
            warm=warm,
            warmup_seconds=method.warmup_seconds,
            min_runs=method.min_runs,
            max_runs=method.max_runs if evict < _SLOW_BYTES else method.min_runs,
            min_seconds=method.min_seconds,
            evict_bytes=evict,
        )
        low, median, high = statistics.quantiles(seconds, n=4)
        return {"seconds": median, "low": low, "high": high, "runs": len(seconds)}


def _tolerance(func: relax.Function) -> float:
    types = func.ret_ty.fields if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    return max(TOLERANCE.get(str(ty.dtype), 0.0) for ty in types)


def main() -> None:
    """Serve requests until the other end closes."""
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rb") as requests:
        hello = json.loads(requests.readline())
        worker = Worker(hello["threads"], Method(**hello["method"]))
        for line in requests:
            reply = worker.answer(json.loads(line))
            try:
                connection.sendall(json.dumps(reply).encode() + b"\n")
            except BrokenPipeError:
                return


if __name__ == "__main__":
    main()
