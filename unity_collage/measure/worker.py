"""The worker process: builds, checks and times kernels, so that a crash costs one kernel and not the run.

:mod:`unity_collage.processes.child` describes the protocol. The worker replies to a request for costs with

* ``{"stage": ..., "key": ...}`` before each step, so that the parent knows which kernel a crash or silence belongs to,
* ``{"key": ..., "seconds": ...}``, or ``{"key": ..., "reason": ..., "kind": ..., "lasting": ...}`` for each candidate,
* and ``{"done": true}``, or ``{"fault": ..., "kind": ...}`` if a kernel has spoilt the process: its parent ends it.

A request for costs may have ``seconds``, after which no kernel is begun but the first. Those that were not begun have
no reply, and the last message has ``{"late": true}``.

The kernels of a request for costs may compute different things. First all of them are compiled, on all cores. Then each
is checked, and those for one computation are timed in turns. Kernels of other computations share these turns where one
eviction of the caches can serve all. The kernels of a request with ``together`` have costs already.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import tvm
from cachetools import LRUCache
from tvm import relax
from tvm.target import Target

from .. import runtime
from ..cost.method import Method
from ..database.rows import FailureKind
from ..errors import first_line
from ..lowering.object_store import keep_in
from ..machine import environment
from ..machine.memory import available_bytes
from ..processes.process import Message
from ..processes.serving import Say, serve_messages
from ..runtime.timing import Runner, Timed
from .bench import Bench, CpuBench
from .built_kernel import held_bytes
from .checker import Checker, in_time
from .computations import Computation, as_rivals, batches, computations, evicted_beside
from .guard import watch
from .inputs import random_inputs
from .process_state import Spoilt
from .refusal import refusal_of

_CACHE_SHARE = 4
"""The cache of built kernels takes at most the memory that the worker may use, or that is left, divided by this."""

_ROUNDS_AT_ONCE, _MOST_TURNS = 6, 4
"""For kernels that are timed together: the rounds in one go, and the most goes; a percentile that needs more runs
gets more.
"""

_WIDE = 0.1
"""Half the width of an interval is notable from this part of the cost on."""


class MeasuringWorker:
    """Answers requests. It keeps the kernels that it has timed, as long as they fit into the cache."""

    def __init__(self, bench: Bench, method: Method, memory_bytes: int, say: Say):
        self._method = method
        self._say = say
        self._cache: LRUCache[str, tuple[Runner, int]] = LRUCache(
            min(memory_bytes, available_bytes()) // _CACHE_SHARE, getsizeof=lambda held: held[1]
        )
        self._target = ""
        """The target of the kernels in the cache, as JSON: kernels for several targets may have equal keys."""
        self._bench = bench
        self._checker = Checker(bench, say)

    def answer(self, request: Message) -> None:
        """Send all messages that answer one request."""
        try:
            if request["ask"] == "launch":
                is_busy = self._bench.is_busy_since()
                target = Target(json.loads(request["target"]))
                found = self._bench.overheads(target, request.get("backends", ["tvm"]), self._begin)
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
            found = refusal_of(error, FailureKind.RUN_ERROR)
            lasting = found.lasting and found.kind is not FailureKind.OUT_OF_MEMORY
            self._say(
                {"reason": f"{type(error).__name__}: {first_line(error)}", "lasting": lasting, "done": True}
            )

    def _begin(self, stage: str) -> None:
        """Tell the parent what begins: the limit for a silence starts again."""
        self._say({"stage": stage, "key": None})

    def _of_target(self, text: str) -> Target:
        """The target of a request. Kernels for another target leave the cache."""
        if text != self._target:
            self._cache.clear()
            self._target = text
        return Target(json.loads(text))

    def _measure(self, request: Message) -> None:
        target = self._of_target(request["target"])
        asked = computations(request["candidates"])
        end = time.monotonic() + request.get("seconds", math.inf)

        def is_late() -> bool:
            return time.monotonic() > end

        lowered = self._checker.prepared(asked, target, is_late)
        for batch in in_time(batches([one for one in asked if one.trials], request["evict_bytes"]), is_late):
            for one in in_time(batch, is_late):
                self._checker.check(one, target, lowered, len(batch) > 1, is_late)
            self._time([one for one in batch if one.built], request["evict_bytes"])
            for one in batch:
                one.built.clear()
        self._say({"done": True, "late": is_late()})

    def _time(self, batch: Sequence[Computation], evict_bytes: int) -> None:
        """Time the kernels of a batch in turns, and keep them."""
        runners: dict[str, Runner] = {}
        for number, one in enumerate(batch):
            if one.built:
                found = self._bench.runners_of(one.func, one.trials[0].inputs, one.built)
                runners |= as_rivals(number, found)
        if not runners:
            return
        self._say({"stage": "timing", "key": next(iter(runners)) if len(runners) == 1 else None})
        is_busy = self._bench.is_busy_since()
        timed = self._bench.time_in_turns(
            [*runners.values()], self._method, evicted_beside(batch, evict_bytes)
        )
        self._bench.after_timing()
        busy = is_busy()
        for key, (seconds, is_doubtful) in zip(runners, timed, strict=True):
            self._say_cost(key, seconds, is_doubtful, busy)
        for one in batch:
            for key in one.built:
                self._keep(key, runners[key]._replace(twin=None), one.func)

    def _time_together(self, request: Message) -> None:
        """Time kernels for different computations in turns: each once in every round."""
        target = self._of_target(request["target"])
        runners = {key: self._runner(key, asked, target) for key, asked in request["candidates"].items()}
        turns: list[list[Timed]] = [[] for _ in runners]
        begin, is_busy = time.monotonic(), self._bench.is_busy_since()
        most = max(_MOST_TURNS, math.ceil(self._method.min_runs / _ROUNDS_AT_ONCE))
        while not turns[0] or (len(turns[0]) < most and time.monotonic() - begin < request["seconds"]):
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
        built = {key: self._checker.built(func, inputs, asked, target)}
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
