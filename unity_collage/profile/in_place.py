"""Profiles a program in this process: it is built once more with timing points, and runs in turns with itself."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tvm.ir import IRModule
from tvm.target import Target

from .. import runtime
from ..annotations import PLAN
from ..calling.memory import CPU
from ..database.costs import CostDatabase
from ..errors import CollageError, last_line
from ..lowering.build import link, lower
from ..lowering.object_store import ObjectStore, using
from ..machine.peaks import known_machine
from ..program import Program
from .assembly import Series, profile_of
from .lanes import LaneClocks, with_lane_clocks
from .readings import Recorder, take_announcements
from .result import Profile
from .timing_points import TimingPoints

TURNS = 16
"""The most turns of the program with timing points and without them, after a first one that does not count."""
LEAST_TURNS = 2
"""How many turns a program has if it is slow for the time that is allowed."""
_LEAST_RUNS, _MOST_RUNS = 3, 1000
_ONE_AT_A_TIME = threading.Lock()


def profile(
    program: Program,
    arguments: Sequence[Any],
    named: Mapping[str, Any],
    seconds: float,
    target: Target,
    database: CostDatabase | None = None,
    store: ObjectStore | None = None,
    mod: IRModule | None = None,
) -> Profile:
    """The profile of a program on these inputs, measured for about ``seconds``.

    ``target``: what it was compiled for. ``database``: has the peaks of this machine, if they are known. ``store``:
    has the object code of its kernels. ``mod``: the module with the kernels that are timed, if it is not that of the
    program. Raises CollageError with the reason where the program cannot be profiled.
    """
    if program.device != CPU:
        raise CollageError("kernels are timed one by one on CPUs only: on a GPU Nsight Systems shows them")
    mod = program.mod if mod is None else mod
    if mod is None:
        raise CollageError(
            "a loaded program has no timing points: profile_saved times the kernels of its plan (docs/profile.md)"
        )
    points, clocks, timed = _with_timing_points(program, mod, target, store or ObjectStore())
    with _ONE_AT_A_TIME:
        take_announcements()
        run, timed_run = program.prepared(*arguments, **named), timed.prepared(*arguments, **named)
        recorder = Recorder(timed_run, clocks.readings)
        series = _measured(run, recorder, seconds)
    machine = None if database is None else known_machine(database)
    return profile_of(points.regions, recorder.path, series, PLAN.by_function(mod), machine, clocks.stages)


def _with_timing_points(
    program: Program, mod: IRModule, target: Target, store: ObjectStore
) -> tuple[TimingPoints, LaneClocks, Program]:
    try:
        with using(store):
            points = TimingPoints(lower(mod, target))
            clocks = with_lane_clocks(points.module())
        if clocks.stages and store.folder is not None:  # their code has addresses of this process
            store = ObjectStore(store.folder, read_only=True)
        with using(store):
            executable = link(clocks.module, target)
    except CollageError:
        raise
    except Exception as error:  # a foreign compiler failed
        text = f"{type(error).__name__}: {last_line(error)}"
        raise CollageError(f"the program cannot be built with timing points: {text}") from error
    names, threads = program.input_names, program.threads
    timed = Program(
        executable,
        names,
        signature=program.signature,
        target=target,
        threads=threads,
        devices=program.devices,
    )
    return points, clocks, timed


def _measured(run: Any, recorder: Recorder, seconds: float) -> Series:
    """The program itself and with timing points, in turns, so that drift of the machine affects both alike."""
    each = seconds / (3 * (TURNS + 1))

    def measured(which: Any) -> list[float]:
        return runtime.measure(which, [], warmup_seconds=each / 4, min_runs=_LEAST_RUNS, min_seconds=each)

    found = Series()
    one = max(1e-9, statistics.median(measured(run)))
    count = max(_LEAST_RUNS, min(_MOST_RUNS, int(each / one)))
    recorder.runs(count)
    turns = int(seconds / (3 * max(each, _LEAST_RUNS * one)))
    for _ in range(max(LEAST_TURNS, min(TURNS, turns))):
        found.plain += measured(run)
        found.timed += measured(recorder.run)
        runs = recorder.runs(count)
        found.gaps += runs.gaps
        found.pauses = runs.pauses
        found.lanes += runs.lanes
    return found
