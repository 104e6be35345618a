"""The worker process: builds, checks and times kernels, so that a crash costs one kernel and not the run.

Started as ``python -m unity_collage.cost.worker FD``. Requests and replies are JSON lines on a socket at
file descriptor FD; standard output stays free for what libraries print. ``{"ready": true}`` comes first. A request
for prices is answered by

* ``{"stage": ..., "key": ...}`` before each step, so that the other end knows whose fault an end or a silence is,
* ``{"key": ..., "seconds": ...}`` or ``{"key": ..., "reason": ..., "kind": ...}`` for each candidate, and
* ``{"done": true}``.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from .. import runtime
from ..backends.registry import get
from ..errors import first_line
from ..runtime.timing import Runner
from . import kernel_library, surroundings
from .caches import evict_bytes
from .guard import watch
from .judge import Trial, outputs_or_refusal, outvoted, trials
from .kernels import NoKernel, activation_tensors, make_kernel, output_tensors
from .launch import overheads
from .method import Method
from .refusal import Refusal, Refused, refusal_of
from .storage.rows import Kind

Message = dict[str, Any]
Say = Callable[[Message], None]


@dataclass
class _Contestant:
    """A kernel that is built, and what it made of each trial."""

    kernel: Any
    constants: list[tvm.runtime.Tensor]
    outputs: list[Any] = field(default_factory=list)


class Worker:
    """Answers requests; keeps the last trials, since questions about one computation may come one by one."""

    def __init__(self, threads: int, method: Method, say: Say):
        runtime.set_num_threads(threads)
        self._method = method
        self._say = say
        self._digest = ""
        self._trials: list[Trial] = []

    def answer(self, request: Message) -> None:
        """Say all there is to say to one request."""
        try:
            if request["ask"] == "launch":
                self._say(overheads(Target(json.loads(request["target"])), request.get("backends", ["tvm"])))
            elif request["ask"] == "surroundings":
                self._say(surroundings.described())
            else:
                self._price(request)
        except Exception as error:  # no candidate's fault: the reference, or a request that is broken
            self._say({"reason": f"{type(error).__name__}: {first_line(error)}", "done": True})

    def _price(self, request: Message) -> None:
        target = Target(json.loads(request["target"]))
        funcs = {key: tvm.ir.load_json(asked["function"]) for key, asked in request["candidates"].items()}
        first = next(iter(funcs.values()))
        if request["digest"] != self._digest:
            self._say({"stage": "computing the reference", "key": None})
            self._trials, self._digest = trials(first), request["digest"]
        built: dict[str, _Contestant] = {}
        for key, func in funcs.items():
            try:
                built[key] = self._checked(key, func, request["candidates"][key], target)
            except Refused as refused:
                self._refuse(key, refused.refusal)
        for key, refusal in self._outvoted(first, built).items():
            self._refuse(key, refusal)
            del built[key]
        self._time(first, built, request["weights_in"])
        self._say({"done": True})

    def _checked(self, key: str, func: relax.Function, asked: Message, target: Target) -> _Contestant:
        """The kernel of one candidate; raises Refused with the reason why there is none to be priced."""
        self._say({"stage": "building", "key": key})
        made = _built(func, self._trials[0], asked, target)
        self._say({"stage": "running", "key": key})
        made.outputs = outputs_or_refusal(func, self._trials, made.kernel, made.constants)
        return made

    def _outvoted(self, func: relax.Function, built: dict[str, _Contestant]) -> dict[str, Refusal]:
        self._say({"stage": "comparing", "key": None})
        return outvoted(func, self._trials, {key: made.outputs for key, made in built.items()})

    def _time(self, func: relax.Function, built: dict[str, _Contestant], weights_in: str) -> None:
        if not built:
            return
        self._say({"stage": "timing", "key": next(iter(built)) if len(built) == 1 else None})
        activations = activation_tensors(func, self._trials[0].inputs)
        outputs = output_tensors(func)
        warm = [*activations, *outputs]
        runners = [
            Runner(made.kernel, [*activations, *made.constants, *outputs], warm) for made in built.values()
        ]
        for key, seconds in zip(built, self._raced(runners, evict_bytes(weights_in)), strict=True):
            found = runtime.interval(seconds, self._method.percentile, self._method.confidence)
            self._say({"key": key, "seconds": found.estimate, "low": found.low, "high": found.high,
                       "runs": len(seconds)})  # fmt: skip

    def _raced(self, runners: list[Runner], evict: int) -> list[list[float]]:
        method = self._method
        return runtime.race(
            runners,
            percentile=method.percentile,
            confidence=method.confidence,
            tolerance=method.tolerance,
            min_runs=method.min_runs,
            max_runs=method.max_runs,
            max_seconds=method.max_seconds,
            max_warmup_seconds=method.max_warmup_seconds,
            evict_bytes=evict,
        )

    def _refuse(self, key: str, refusal: Refusal) -> None:
        kind = None if refusal.kind is None else refusal.kind.value
        self._say({"key": key, "reason": refusal.reason, "kind": kind})


def _built(func: relax.Function, trial: Trial, asked: Message, target: Target) -> _Contestant:
    """The kernel, made here or read from the ``library`` in which another machine has sent it."""
    try:
        if "library" in asked:
            made = kernel_library.read(asked["backend"], asked["library"], asked["constants"])
        else:
            made = make_kernel(func, trial.inputs, get(asked["backend"]), target)
        return _Contestant(made.function, made.constants)
    except NoKernel as error:
        raise Refused(Refusal(str(error))) from error
    except Exception as error:  # a foreign compiler failed: that is the answer
        raise Refused(refusal_of(error, Kind.COMPILE_ERROR)) from error


def _watched_line(reason: str) -> str:
    """What is said of a touch of a guard page."""
    return json.dumps({"fault": reason, "kind": Kind.WROTE_OUTSIDE.value}) + "\n"


def main() -> None:
    """Serve requests until the other end closes."""
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rb") as requests:

        def say(message: Message) -> None:
            connection.sendall(json.dumps(message).encode() + b"\n")

        hello = json.loads(requests.readline())
        worker = Worker(hello["threads"], Method(**hello["method"]), say)
        watch(connection.fileno(), _watched_line)
        surroundings.limit_memory(hello["memory_bytes"])
        say({"ready": True})
        for line in requests:
            try:
                worker.answer(json.loads(line))
            except BrokenPipeError:
                return


if __name__ == "__main__":
    main()
