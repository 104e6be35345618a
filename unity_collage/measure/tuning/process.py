"""The process that tunes: MetaSchedule with its cost model, away from the kernels that are timed.

Started as ``python -m unity_collage.measure.tuning.process FD``; :mod:`unity_collage.processes.child` describes the
protocol. The output of TVM and its helpers goes to ``tuner.log`` in the folder of the records.
"""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any, cast

import tvm
from tvm import tirx
from tvm.target import Target

from ...annotations import plain
from ...processes.child import Reply
from ...processes.serving import serve
from ...schedule.tensor_intrinsics import register_cpu_intrinsics
from ...tvm_private import tuning_workload
from .meta_schedule import local_builder, local_runner

_POPULATION, _PER_TRIAL = 512, 32
"""How many schedules evolve at a time for each trial, if that is less than MetaSchedule's default."""

_AT_ONCE = 64


class _Tuner:
    def __init__(self, folder: Path, threads: int):
        register_cpu_intrinsics()
        self._folder = folder
        self._threads = threads
        self._builder = local_builder(threads)
        self._runner = local_runner(threads)

    def answer(self, request: dict[str, Any]) -> Reply:
        """Run ``trials`` more trials; the reply is the best schedule of all trials so far."""
        from tvm.s_tir import meta_schedule as ms

        kernel = cast(tirx.PrimFunc, tvm.ir.load_json(request["kernel"]))
        trials = int(request["trials"])
        database = ms.tune_tir(
            kernel,
            Target(json.loads(request["target"])),
            str(self._folder),
            trials,
            num_trials_per_iter=min(trials, _AT_ONCE),
            builder=self._builder,
            runner=self._runner,
            strategy=_strategy(trials),
            num_tuning_cores=self._threads,
            seed=0,
        )
        return self._best(database, kernel, request["target"])

    def _best(self, database: Any, kernel: tirx.PrimFunc, target: str) -> Reply:
        workload = database.commit_workload(tuning_workload(kernel))
        for record in database.get_top_k(workload, len(database)):
            if str(record.target) == target:
                trace = json.dumps(plain(record.trace.as_json()))
                return {"trace": trace, "seconds": statistics.median(map(float, record.run_secs))}
        return {"trace": "", "seconds": None}


def _strategy(trials: int) -> Any:
    from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch

    return EvolutionarySearch(population_size=min(_POPULATION, _PER_TRIAL * trials))


def _made(hello: dict[str, Any]) -> Any:
    folder = Path(hello["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / "tuner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    return _Tuner(folder, int(hello["threads"])).answer


if __name__ == "__main__":
    serve(_made)
