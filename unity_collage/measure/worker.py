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
from ..cost.method import Method
from ..database.rows import FailureKind
from ..errors import first_line
from ..machine import environment
from ..machine.load import Load, LoadWatch
from ..processes.process import Message
from ..processes.serving import Say, serve_messages
from ..runtime.timing import Runner, Timed
from .built_kernel import BuiltKernel, built_kernel, held_bytes, runners_of
from .guard import watch
from .inputs import random_inputs
from .judge import Trial, outputs_or_refusal, outvoted, trials
from .launch import overheads
from .process_state import ProcessState, Spoilt
from .refusal import Refusal, Refused

_CACHE_SHARE = 4
"""The cache of built kernels takes at most the memory that the worker may use, divided by this."""

_ROUNDS_AT_ONCE, _MOST_TURNS = 6, 4
"""For kernels that are timed together: rounds in one go, and how often at most."""

_WIDE = 0.1
"""From which part of a cost on half the width of its interval is notable."""


class Worker:
    """Answers requests. It caches the last trials, since questions about one computation may come one by one."""

    def __init__(self, threads: int, method: Method, memory_bytes: int, say: Say):
        runtime.set_num_threads(threads)
        self._method = method
        self._say = say
        self._cache: LRUCache[str, tuple[Runner, int]] = LRUCache(
            memory_bytes // _CACHE_SHARE, getsizeof=lambda held: held[1]
        )
        self._state = ProcessState()
        self._digest = ""
        self._trials: list[Trial] = []

    def answer(self, request: Message) -> None:
        """Send all messages that answer one request."""
        try:
            if request["ask"] == "launch":
                watch = LoadWatch(has_children=False)
                found = overheads(Target(json.loads(request["target"])), request.get("backends", ["tvm"]))
                self._state.after_building()
                self._say({**found, "doubtful": watch.load().is_busy})
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
        made.outputs = self._state.settled(
            lambda: outputs_or_refusal(func, self._trials, made.kernel, made.constants)
        )
        return made

    def _built(
        self, func: relax.Function, inputs: Sequence[np.ndarray], asked: Message, target: Target
    ) -> BuiltKernel:
        try:
            return built_kernel(func, inputs, asked, target)
        finally:
            self._state.after_building()

    def _outvoted(self, func: relax.Function, built: dict[str, BuiltKernel]) -> dict[str, Refusal]:
        self._say({"stage": "comparing", "key": None})
        return outvoted(func, self._trials, {key: made.outputs for key, made in built.items()})

    def _time(self, func: relax.Function, built: dict[str, BuiltKernel], evict_bytes: int) -> None:
        if not built:
            return
        self._say({"stage": "timing", "key": next(iter(built)) if len(built) == 1 else None})
        runners = runners_of(func, self._trials[0].inputs, built)
        watch = LoadWatch(has_children=False)
        timed = self._in_turns([*runners.values()], evict_bytes)
        self._state.check_timed()
        load = watch.load()
        for key, (seconds, is_doubtful) in zip(built, timed, strict=True):
            self._say_cost(key, seconds, is_doubtful, load)
        for key, runner in runners.items():
            self._keep(key, runner, func)

    def _time_together(self, request: Message) -> None:
        """Time kernels for different computations in turns: each once in every round."""
        target = Target(json.loads(request["target"]))
        runners = {key: self._runner(key, asked, target) for key, asked in request["candidates"].items()}
        turns: list[list[Timed]] = [[] for _ in runners]
        begin, watch = time.monotonic(), LoadWatch(has_children=False)
        while len(turns[0]) < _MOST_TURNS and time.monotonic() - begin < request["seconds"]:
            self._say({"stage": "timing", "key": None})
            rounds = runtime.time_in_turns(
                [*runners.values()],
                min_runs=_ROUNDS_AT_ONCE,
                max_runs=_ROUNDS_AT_ONCE,
                max_seconds=math.inf,
                max_warmup_seconds=0.0,
                evict_bytes=request["evict_bytes"],
                evict_each_run=request["apart"],
            )
            for known, more in zip(turns, rounds, strict=True):
                known.append(more)
        self._state.check_timed()
        load = watch.load()
        for key, of_kernel in zip(runners, turns, strict=True):
            seconds = [second for turn in of_kernel for second in turn.seconds]
            disturbed = sum(turn.is_doubtful for turn in of_kernel)
            self._say_cost(key, seconds, disturbed > len(of_kernel) / 2, load)
        self._say({"done": True})

    def _runner(self, key: str, asked: Message, target: Target) -> Runner:
        """The kernel of one candidate, from the cache or built now."""
        if key in self._cache:
            return self._cache[key][0]
        self._say({"stage": "building", "key": key})
        func = tvm.ir.load_json(asked["function"])
        inputs = random_inputs(func)
        runner = runners_of(func, inputs, {key: self._built(func, inputs, asked, target)})[key]
        self._keep(key, runner, func)
        return runner

    def _keep(self, key: str, runner: Runner, func: relax.Function) -> None:
        """Put a runner into the cache, unless it is larger than the cache."""
        with suppress(ValueError):
            self._cache[key] = runner, held_bytes(func)

    def _say_cost(self, key: str, seconds: list[float], is_doubtful: bool, load: Load) -> None:
        """Send a cost. It is also doubtful if the runs differ much while others use the machine."""
        found = runtime.interval(seconds, self._method.percentile, self._method.confidence)
        is_wide = found.high - found.low > 2 * _WIDE * found.estimate
        self._say({"key": key, "seconds": found.estimate, "low": found.low, "high": found.high,
                   "runs": len(seconds), "doubtful": is_doubtful or (is_wide and load.is_busy)})  # fmt: skip

    def _in_turns(self, runners: list[Runner], evict: int) -> list[Timed]:
        method = self._method
        return runtime.time_in_turns(
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


def _watched_line(reason: str) -> str:
    """The message about a touch of a guard page."""
    return json.dumps({"fault": reason, "kind": FailureKind.WROTE_OUTSIDE.value}) + "\n"


def _ready(hello: Message, connection: int, say: Say) -> Callable[[Message], None]:
    watch(connection, _watched_line)
    worker = Worker(hello["threads"], Method(**hello["method"]), hello["memory_bytes"], say)
    environment.limit_memory(hello["memory_bytes"])
    return worker.answer


if __name__ == "__main__":
    serve_messages(_ready)
