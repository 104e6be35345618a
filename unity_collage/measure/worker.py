"""The worker process: builds, checks and times kernels, so that a crash costs one kernel and not the run.

:mod:`unity_collage.processes.child` describes the protocol. The worker answers a request for costs with

* ``{"stage": ..., "key": ...}`` before each step, so that the parent knows which kernel a crash or silence belongs to,
* ``{"key": ..., "seconds": ...}`` or ``{"key": ..., "reason": ..., "kind": ...}`` for each candidate, and
* ``{"done": true}``, or ``{"fault": ..., "kind": ...}`` if a kernel has spoilt the process: its parent ends it then.

The kernels of a request for costs compute the same, and are checked and timed in turns. The kernels of a request that
asks ``together`` have costs already, and may compute different things.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import tvm
from cachetools import LRUCache
from tvm import relax
from tvm.target import Target

from .. import runtime
from ..annotations import LIFTED
from ..cost.method import Method
from ..database.rows import FailureKind
from ..errors import first_line
from ..lowering.object_store import keep_in
from ..machine import environment
from ..processes.process import Message
from ..processes.serving import Say, serve_messages
from ..runtime.timing import Runner, Timed
from .bench import Bench, CpuBench
from .built_kernel import BuiltKernel, built_kernel, held_bytes
from .guard import watch
from .inputs import random_inputs
from .judge import Trial, nan_trial, outputs_or_refusal, outvoted, trials, why_nan_is_lost
from .process_state import Spoilt
from .refusal import Refusal, Refused

_CACHE_SHARE = 4
"""The cache of built kernels takes at most the memory that the worker may use, divided by this."""

_ROUNDS_AT_ONCE, _MOST_TURNS = 6, 4
"""For kernels that are timed together: rounds in one go, and how often at most; more often for a percentile that needs
more runs."""

_WIDE = 0.1
"""From which part of a cost on half the width of its interval is notable."""


class MeasuringWorker:
    """Answers requests. It caches the last trials, since questions about one computation may come one by one."""

    def __init__(self, bench: Bench, method: Method, memory_bytes: int, say: Say):
        self._method = method
        self._say = say
        self._cache: LRUCache[str, tuple[Runner, int]] = LRUCache(
            memory_bytes // _CACHE_SHARE, getsizeof=lambda held: held[1]
        )
        self._bench = bench
        self._digest = ""
        self._trials: list[Trial] = []
        self._nan: Trial | None = None

    def answer(self, request: Message) -> None:
        """Send all messages that answer one request."""
        try:
            if request["ask"] == "launch":
                is_busy = self._bench.is_busy_since()
                target = Target(json.loads(request["target"]))
                found = self._bench.overheads(target, request.get("backends", ["tvm"]))
                self._bench.after_building()
                self._say({**found, "doubtful": is_busy()})
            elif request["ask"] == "environment":
                self._say(environment.described())
            elif request["ask"] == "together":
                self._time_together(request)
            else:
                self._measure(request)
        except Spoilt as spoilt:
            self._say({"fault": str(spoilt), "kind": FailureKind.RUN_ERROR.value})
        except Exception as error:  # not the fault of a candidate: the reference or the request is wrong
            self._say({"reason": f"{type(error).__name__}: {first_line(error)}", "done": True})

    def _measure(self, request: Message) -> None:
        target = Target(json.loads(request["target"]))
        funcs = {key: tvm.ir.load_json(asked["function"]) for key, asked in request["candidates"].items()}
        first = next(iter(funcs.values()))
        if request["digest"] != self._digest:
            self._say({"stage": "computing the reference", "key": None})
            self._trials, self._digest = trials(first), request["digest"]
            self._nan = nan_trial(first) if self._bench.tries_nan else None
        built: dict[str, BuiltKernel] = {}
        for key, func in funcs.items():
            try:
                built[key] = self._checked(key, func, request["candidates"][key], target)
            except Refused as refused:
                self._refuse(key, refused.refusal)
        for key, refusal in self._outvoted(first, built).items():
            self._refuse(key, refusal)
            del built[key]
        self._time(first, built, request["evict_bytes"])
        self._say({"done": True})

    def _checked(self, key: str, func: relax.Function, asked: Message, target: Target) -> BuiltKernel:
        """The kernel of one candidate; raises Refused with the reason where there is none."""
        self._say({"stage": "building", "key": key})
        made = self._built(func, self._trials[0].inputs, asked, target)
        self._say({"stage": "running", "key": key})
        run = self._bench.outputs_of
        made.outputs = self._bench.settled(
            lambda: outputs_or_refusal(func, self._trials, made.kernel, made.constants, run)
        )
        if self._nan is not None:
            self._bench.settled(lambda: self._check_nan(func, made))
        return made

    def _check_nan(self, func: relax.Function, made: BuiltKernel) -> None:
        """Raises Refused if a kernel makes numbers of NaN."""
        assert self._nan is not None and self._nan.expected is not None
        count = len(func.params) - int(func.attrs[LIFTED])
        got = self._bench.outputs_of(made.kernel, self._nan.inputs[:count], made.constants, func, True)
        refusal = why_nan_is_lost(got, self._nan.expected)
        if refusal is not None:
            raise Refused(refusal)

    def _built(
        self, func: relax.Function, inputs: Sequence[np.ndarray], asked: Message, target: Target
    ) -> BuiltKernel:
        try:
            return built_kernel(func, inputs, asked, target, self._bench.prepare)
        finally:
            self._bench.after_building()

    def _outvoted(self, func: relax.Function, built: dict[str, BuiltKernel]) -> dict[str, Refusal]:
        self._say({"stage": "comparing", "key": None})
        return outvoted(func, self._trials, {key: made.outputs for key, made in built.items()})

    def _time(self, func: relax.Function, built: dict[str, BuiltKernel], evict_bytes: int) -> None:
        if not built:
            return
        self._say({"stage": "timing", "key": next(iter(built)) if len(built) == 1 else None})
        runners = self._bench.runners_of(func, self._trials[0].inputs, built)
        is_busy = self._bench.is_busy_since()
        timed = self._bench.time_in_turns([*runners.values()], self._method, evict_bytes)
        self._bench.after_timing()
        busy = is_busy()
        for key, (seconds, is_doubtful) in zip(built, timed, strict=True):
            self._say_cost(key, seconds, is_doubtful, busy)
        for key, runner in runners.items():
            self._keep(key, runner, func)

    def _time_together(self, request: Message) -> None:
        """Time kernels for different computations in turns: each once in every round."""
        target = Target(json.loads(request["target"]))
        runners = {key: self._runner(key, asked, target) for key, asked in request["candidates"].items()}
        turns: list[list[Timed]] = [[] for _ in runners]
        begin, is_busy = time.monotonic(), self._bench.is_busy_since()
        most = max(_MOST_TURNS, math.ceil(self._method.min_runs / _ROUNDS_AT_ONCE))
        while len(turns[0]) < most and time.monotonic() - begin < request["seconds"]:
            self._say({"stage": "timing", "key": None})
            rounds = self._bench.time_together(
                [*runners.values()], _ROUNDS_AT_ONCE, request["evict_bytes"], request["apart"]
            )
            for known, more in zip(turns, rounds, strict=True):
                known.append(more)
        self._bench.after_timing()
        busy = is_busy()
        for key, of_kernel in zip(runners, turns, strict=True):
            seconds = [second for turn in of_kernel for second in turn.seconds]
            disturbed = sum(turn.is_doubtful for turn in of_kernel)
            self._say_cost(key, seconds, disturbed > len(of_kernel) / 2, busy)
        self._say({"done": True})

    def _runner(self, key: str, asked: Message, target: Target) -> Runner:
        """The kernel of one candidate, from the cache or built now."""
        if key in self._cache:
            return self._cache[key][0]
        self._say({"stage": "building", "key": key})
        func = tvm.ir.load_json(asked["function"])
        inputs = random_inputs(func)
        built = {key: self._built(func, inputs, asked, target)}
        runner = self._bench.runners_of(func, inputs, built)[key]
        self._keep(key, runner, func)
        return runner

    def _keep(self, key: str, runner: Runner, func: relax.Function) -> None:
        """Put a runner into the cache, unless it is larger than the cache."""
        with suppress(ValueError):
            self._cache[key] = runner, held_bytes(func)

    def _say_cost(self, key: str, seconds: list[float], is_doubtful: bool, is_busy: bool) -> None:
        """Send a cost. It is also doubtful if the runs differ much while others use the machine."""
        found = runtime.interval(seconds, self._method.percentile, self._method.confidence)
        is_wide = found.high - found.low > 2 * _WIDE * found.estimate
        self._say({"key": key, "seconds": found.estimate, "low": found.low, "high": found.high,
                   "runs": len(seconds), "doubtful": is_doubtful or (is_wide and is_busy)})  # fmt: skip

    def _refuse(self, key: str, refusal: Refusal) -> None:
        kind = None if refusal.kind is None else refusal.kind.value
        self._say({"key": key, "reason": refusal.reason, "kind": kind})


def _watched_line(reason: str) -> str:
    """The message about a touch of a guard page."""
    return json.dumps({"fault": reason, "kind": FailureKind.WROTE_OUTSIDE.value}) + "\n"


def ready(bench: Bench, hello: Message, say: Say) -> Callable[[Message], None]:
    """The function that answers the requests of the parent that sent ``hello``."""
    keep_in(hello["objects"])
    return MeasuringWorker(bench, Method(**hello["method"]), hello["memory_bytes"], say).answer


def _ready(hello: Message, connection: int, say: Say) -> Callable[[Message], None]:
    watch(connection, _watched_line)
    runtime.set_num_threads(hello["threads"])
    answer = ready(CpuBench(), hello, say)
    environment.limit_memory(hello["memory_bytes"])
    return answer


if __name__ == "__main__":
    serve_messages(_ready)
