"""What a kernel changes of the worker process is put back before another one runs, or the process is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from spoiling_backends import SPOILERS
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage.cost.asking import workloads
from unity_collage.cost.method import Method
from unity_collage.database.costs import CostDatabase, FailureKind
from unity_collage.measure.measured import MeasuredCost
from unity_collage.measure.process_state import ProcessState, Spoilt
from unity_collage.passes import AnnotateCandidates
from unity_collage.testing import fake_backend, graphs

QUICK = Method(min_runs=3, max_runs=3, max_warmup_seconds=0.0)


def test_kernels_that_change_the_process_are_refused_and_spoil_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are in one question, and the last kernel checks the process in every run."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    spoilers = [name for name in SPOILERS if name != "affinity" or len(os.sched_getaffinity(0)) > 1]
    names = [f"fake_{name}" for name in (*spoilers, "flood", "once", "check")]
    with (
        fake_backend.installed(
            tmp_path / "site", *SPOILERS, "flood", "once", "check", values="spoiling_backends:FAKES"
        ),
        CostDatabase(tmp_path / "costs.sqlite") as database,
        MeasuredCost(database, method=QUICK) as model,
        uc.host_target(),
    ):
        func = AnnotateCandidates((*names, "tvm"))(IRModule({"main": graphs.chain()}))["main"]
        found = model.costs(list(workloads(func, model).values()))
        entries = database.quarantine_entries()
    costs = {key.split(":")[0]: cost for key, cost in found.items() if key.startswith("fake")}
    for name in spoilers:
        reason = costs.pop(f"fake_{name}").reason
        assert reason.startswith("run error: ") and SPOILERS[name][1] in reason, (name, reason)
    assert {name: cost.reason for name, cost in costs.items() if cost.seconds is None} == {}
    assert all(cost.seconds is not None for key, cost in found.items() if key.startswith("tvm"))
    assert {entry.kind for entry in entries} == {FailureKind.RUN_ERROR} and len(entries) == len(spoilers)


def in_fork(body: Callable[[], object]) -> None:
    """Run ``body`` in a fork of this process, which must not fail there."""
    if (pid := os.fork()) == 0:
        try:
            body()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize(
    "spoil", [os.nice, lambda _: os.closerange(0, 4096)], ids=["niceness", "descriptors"]
)
def test_what_cannot_be_put_back_ends_the_worker(spoil: Callable[[int], object]) -> None:
    def body() -> None:
        state = ProcessState()
        if os.geteuid() == 0:
            os.seteuid(65534)
        with pytest.raises(Spoilt, match="cannot be changed back"):
            state.settled(lambda: spoil(1))

    in_fork(body)


def test_a_handler_for_a_signal_that_never_had_one_is_a_change_once_only() -> None:
    """The C library leaves a flag behind when the action of before is restored."""

    def body() -> None:
        state, runs = ProcessState(), list[int]()

        def run() -> None:
            runs.append(1)
            if len(runs) == 1:
                signal.signal(signal.SIGRTMIN + 9, lambda *_: None)

        state.settled(run)
        state.settled(run)
        assert len(runs) == 3

    in_fork(body)


def test_a_change_while_kernels_are_timed_spoils_their_costs() -> None:
    def body() -> None:
        state = ProcessState()
        state.check_timed()
        os.chdir("/proc")
        with pytest.raises(Spoilt, match="changed while it was timed: the working directory"):
            state.check_timed()
        state.check_timed()

    in_fork(body)


def test_a_process_that_helps_to_build_stays_until_the_worker_ends() -> None:
    def body() -> None:
        state = ProcessState()
        helper = subprocess.Popen(["sleep", "3600"])
        state.after_building()
        assert state.settled(lambda: "outputs") == "outputs"
        assert helper.poll() is None
        helper.kill()

    in_fork(body)
