"""The worker process that runs whole programs: it loads them, and times them in turns or kernel by kernel."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi

from .. import runtime
from ..cost.method import MEDIAN
from ..processes.serving import serve
from ..program import Program, load
from .exceptional import InputSets, exceptional_sets, loses
from .instrument import kernel_seconds
from .results import most_apart
from .rounded_inputs import rounded_sets
from .rounds import in_turns
from .stored_inputs import stored

PAUSE_SECONDS = 0.01
"""The pause between two programs, until the caches and the clock settle."""

_SLOW = 5.0
"""A program that takes this many rounds' time runs once in a round, without a warm-up: a long run has little noise."""

_LATER_CALLS = 5
"""How many calls follow a first one to tell what it takes longer."""

_DENORMAL_ROUNDS = 3
"""How often a program is timed with and without denormal numbers, in turns."""

_MOST_SECONDS = 15.0
"""Where one run of each program takes long, there are only as many rounds as fit into this time, and at least two; one
if a round takes longer.
"""


class LoadedPrograms:
    """The loaded programs, each ready to run on the same sets of inputs."""

    def __init__(self, threads: int, inputs: Path, sets: int):
        self._threads = threads
        runtime.set_num_threads(threads)
        self._sets = stored(inputs, sets)
        self._programs: dict[str, Program] = {}
        self._runs: dict[str, list[Any]] = {}
        self._outputs: dict[str, list[np.ndarray]] = {}
        self._exceptional: dict[str, dict[str, list[np.ndarray]]] = {}
        """The results of each reference, by the exceptional value in its inputs."""
        self._seconds: dict[str, float] = {}
        """The shortest known time of one run on all sets."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request."""
        return getattr(self, f"_{request.pop('ask')}")(**request)

    def _load(self, name: str, path: str) -> dict[str, Any]:
        program = load(path)
        begun = time.monotonic()
        self._outputs[name] = _results(program, self._sets)
        self._seconds[name] = time.monotonic() - begun
        self._runs[name] = [program.prepared(*inputs) for inputs in self._sets]
        self._programs[name] = program
        return {}

    def _drop(self, name: str) -> dict[str, Any]:
        for held in (self._outputs, self._runs, self._programs, self._exceptional, self._seconds):
            held.pop(name, None)
        return {}

    def _error(self, name: str, reference: str) -> dict[str, Any]:
        """The largest difference of any output from that of the reference, over the reference's range."""
        return {"error": most_apart(self._outputs[name], self._outputs[reference])}

    def _once(self, names: list[str]) -> dict[str, Any]:
        """The least seconds of a run of each program so far, after one more: the first run may compile."""
        for name in names:
            self._seconds[name] = min(self._seconds[name], sum(map(_seconds_of, self._runs[name])))
        return {"seconds": [self._seconds[name] for name in names]}

    def _seconds_so_far(self, name: str) -> dict[str, Any]:
        """The least seconds of a run of a program so far."""
        return {"seconds": self._seconds[name]}

    def _rounding_errors(self, names: list[str], seconds: float) -> dict[str, Any]:
        """The largest change of any output of each program if inputs change by rounding; takes about ``seconds``."""
        begun, most = time.monotonic(), dict.fromkeys(names, 0.0)
        for sets in rounded_sets(self._sets):
            for name in names:
                results = _results(self._programs[name], sets)
                most[name] = max(most[name], most_apart(results, self._outputs[name]))
            if time.monotonic() - begun > seconds:
                break
        return {"errors": list(most.values())}

    def _lost(self, name: str, reference: str, seconds: float) -> dict[str, Any]:
        """The exceptional values that the reference passes on and the program loses.

        After ``seconds`` no other value is tried.
        """
        begun, known = time.monotonic(), self._exceptional.setdefault(reference, {})
        lost: list[str] = []
        for value, sets in exceptional_sets(self._sets):
            if value not in known:
                known[value] = _results(self._programs[reference], sets)
            if loses(_results(self._programs[name], sets), known[value]):
                lost.append(value)
            if time.monotonic() - begun > seconds:
                break
        return {"lost": lost}

    def _turns(
        self, names: list[str], rounds: int, round_seconds: float, percentile: float, runs: int
    ) -> dict[str, Any]:
        """The ``percentile`` of the seconds of a run of each program, by round of at least ``runs`` runs.

        For the median, programs that take long run once in a round, and in fewer rounds.
        """
        if percentile == MEDIAN:
            round_of_one_run = max(1e-9, sum(self._seconds[name] for name in names))
            least = 1 if round_of_one_run > _MOST_SECONDS else 2
            rounds = min(rounds, max(least, int(_MOST_SECONDS / round_of_one_run)))
        programs = {name: partial(self._timed, name, runs, percentile) for name in names}
        found = in_turns(programs, rounds, round_seconds, PAUSE_SECONDS, percentile=percentile)
        return {"medians": found}

    def _timed(self, name: str, runs: int, percentile: float, seconds: float) -> list[float]:
        parts = self._runs[name]
        each = seconds / len(parts)
        if percentile == MEDIAN and self._seconds[name] > _SLOW * seconds:
            found = [[_seconds_of(run)] for run in parts]
        else:
            found = [
                runtime.measure(run, [], warmup_seconds=each / 4, min_runs=runs, min_seconds=each)
                for run in parts
            ]
        self._seconds[name] = min(self._seconds[name], sum(map(statistics.median, found)))
        return found[0] if len(found) == 1 else _summed(found)

    def _first_call(self, name: str, inputs: str, results: str) -> dict[str, Any]:
        """The seconds of the first call with these inputs, and of the kernels that libraries compiled in it.

        Its results are written to ``results``, as float64.
        """
        run = self._with_inputs(name, inputs)
        before, begun = runtime.compiled_for_sizes(), time.perf_counter()
        found = run()
        seconds, after = time.perf_counter() - begun, runtime.compiled_for_sizes()
        np.savez(results, *(tensor.numpy().astype(np.float64) for tensor in _flat(found)))
        compiled = {"kernels": after.kernels - before.kernels, "compiling": after.seconds - before.seconds}
        return {"seconds": seconds, **compiled}

    def _later_calls(self, name: str, inputs: str) -> dict[str, Any]:
        """The median seconds of calls with these inputs."""
        run = self._with_inputs(name, inputs)
        return {"seconds": statistics.median(_seconds_of(run) for _ in range(_LATER_CALLS))}

    def _with_inputs(self, name: str, inputs: str) -> Callable[[], Any]:
        (given,) = stored(Path(inputs), 1)
        return partial(self._programs[name], *given)

    def _denormals(self, name: str) -> dict[str, Any]:
        """The median seconds of a run as it is, and where denormal numbers count as zero; in turns.

        A slow program runs once each.
        """
        mode = runtime.float_mode()
        found: dict[bool, list[float]] = {False: [], True: []}
        is_slow = 2 * _DENORMAL_ROUNDS * _LATER_CALLS * self._seconds[name] > _MOST_SECONDS
        try:
            for _ in range(1 if is_slow else _DENORMAL_ROUNDS):
                for flush, seconds in found.items():
                    runtime.flush_denormals(flush)
                    seconds.append(self._median_run(name, 1 if is_slow else _LATER_CALLS))
        finally:
            runtime.restore_float_mode(mode)
        return {"seconds": statistics.median(found[False]), "flushed": statistics.median(found[True])}

    def _median_run(self, name: str, runs: int) -> float:
        """The median seconds of a few runs on each set of inputs, summed over the sets."""
        return sum(statistics.median(_seconds_of(run) for _ in range(runs)) for run in self._runs[name])

    def _kernels(self, name: str, kernels: int, rounds: int, threads: int | None) -> dict[str, Any]:
        """The median seconds of each kernel of an instrumented program."""
        runtime.set_num_threads(threads or self._threads)
        try:
            return {"seconds": kernel_seconds(self._runs[name][0], kernels, rounds)}
        finally:
            runtime.set_num_threads(self._threads)


def _seconds_of(run: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _summed(parts: list[list[float]]) -> list[float]:
    """Times with percentiles that are the sums of those of ``parts``."""
    places = np.linspace(0, 1, min(map(len, parts)))
    return np.sum([np.quantile(part, places) for part in parts], axis=0).tolist()


def _results(program: Program, sets: InputSets) -> list[np.ndarray]:
    return [tensor.numpy() for inputs in sets for tensor in _flat(program(*inputs))]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return [tensor for part in value for tensor in _flat(part)]
    return [value]


if __name__ == "__main__":
    serve(lambda hello: LoadedPrograms(hello["threads"], Path(hello["inputs"]), hello["sets"]).answer)
