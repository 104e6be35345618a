"""Doubtful costs: which are measured again, when, and what a plan says about them. A client has given answers."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage import runtime
from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.cost.asking import workloads
from unity_collage.cost.model import Workload
from unity_collage.database.costs import CostDatabase, FailureKind, Quarantined
from unity_collage.machine.load import LoadWatch
from unity_collage.measure.client import LATE, Answer
from unity_collage.measure.kernel_costs import KernelCosts
from unity_collage.measure.questions import Client, Fingerprints
from unity_collage.measure.refusal import Refusal
from unity_collage.passes import AnnotateCandidates, EstimateNeededCosts, SearchPartition
from unity_collage.plan.candidate import Candidate
from unity_collage.plan.costs import OUT_OF_TIME, UNKNOWN, Cost, Costs
from unity_collage.runtime.timing import Runner
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends

NOISY = Cost(3e-6, 1e-6, 9e-6, 5, is_doubtful=True)
SURE = Cost(2e-6, 2e-6, 2e-6, 9)


@dataclass
class Typed:
    """Answers with the next of its costs, and remembers what it was asked for."""

    answers: list[Answer]
    asked: list[str] = field(default_factory=list)
    facts: list[Mapping[str, Any]] = field(default_factory=list)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.facts.append(request)
        return {"seconds": 1e-7, "launches": {}, "transitions": {}, "doubtful": len(self.facts) == 1}

    def compare(
        self, request: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Answer]:
        self.asked += candidates
        return {key: self.answers.pop(0) for key in candidates}


@dataclass(frozen=True)
class TypedCosts(KernelCosts):
    client: Typed = field(default_factory=lambda: Typed([]))

    def _client(self) -> Client:
        return self.client

    def _fingerprints(self) -> Fingerprints:
        return Fingerprints(Target("llvm"), lambda backend: f"of {backend}", lambda backend: f"{backend} 1")


def kernel() -> Workload:
    return Workload("digest", "tvm", "relu", graphs.chain(), 0)


def model(path: Path, answers: Sequence[Answer], **options: Any) -> TypedCosts:
    return TypedCosts(CostDatabase(path / "costs.sqlite"), client=Typed(list(answers)), **options)


def test_a_doubtful_cost_is_measured_again_by_the_next_compile_and_not_by_the_same(tmp_path: Path) -> None:
    first = model(tmp_path, [NOISY])
    for _ in range(2):
        (cost,) = first.costs([kernel()]).values()
        assert cost.is_doubtful and cost.seconds == 3e-6
    assert len(first.client.asked) == 1
    second = model(tmp_path, [SURE])
    assert [cost.seconds for cost in second.costs([kernel()]).values()] == [2e-6]
    third = model(tmp_path, [])
    assert [cost.is_doubtful for cost in third.costs([kernel()]).values()] == [False]


def test_a_doubtful_cost_never_replaces_a_sure_one(tmp_path: Path) -> None:
    model(tmp_path, [SURE]).costs([kernel()])
    again = model(tmp_path, [NOISY], remeasure=True)
    again.costs([kernel()])
    assert len(again.client.asked) == 1, "it was asked for all the same"
    assert [cost.seconds for cost in model(tmp_path, []).costs([kernel()]).values()] == [2e-6]


@pytest.mark.parametrize(
    ("refusal", "seconds"),
    [
        (Refusal("ended from outside", lasting=False, is_from_outside=True), 3e-6),
        (Refusal("no answer within 60 s", FailureKind.HANG), 3e-6),
        (Refusal("off by half", FailureKind.WRONG_NUMBERS), None),
        (Refusal("no such kernel"), None),
    ],
)
def test_a_refusal_that_may_pass_takes_no_doubtful_cost_away(
    tmp_path: Path, refusal: Refusal, seconds: float | None
) -> None:
    model(tmp_path, [NOISY]).costs([kernel()])
    again = model(tmp_path, [refusal])
    assert [cost.seconds for cost in again.costs([kernel()]).values()] == [seconds]
    assert [cost.seconds for cost in model(tmp_path, [], locked=True).costs([kernel()]).values()] == [seconds]


def test_a_kernel_that_is_refused_is_not_run_again_with_its_rivals(tmp_path: Path) -> None:
    """A kernel that hangs would take the limit of time twice in each compile."""
    hanging, other = kernel(), replace(kernel(), backend="toy")
    model(tmp_path, [Refusal("no answer within 60 s", FailureKind.HANG)]).costs([hanging])
    pair = model(tmp_path, [SURE])
    found = pair.compared([hanging, other])
    assert pair.client.asked == [other.key]
    assert (found[hanging.key].seconds, found[other.key].seconds) == (None, 2e-6)


def test_a_locked_database_gives_doubtful_costs_as_they_are(tmp_path: Path) -> None:
    model(tmp_path, [NOISY]).costs([kernel()])
    (cost,) = model(tmp_path, [], locked=True).costs([kernel()]).values()
    assert cost.is_doubtful and cost.origin == "database"


def test_a_doubtful_fact_is_measured_again_too(tmp_path: Path) -> None:
    first = model(tmp_path, [])
    first.overheads(["tvm"])
    first.overheads(["tvm"])
    assert len(first.client.facts) == 1
    second = model(tmp_path, [])
    second.client.facts.append({})  # the answer of the client is doubtful the first time only
    second.overheads(["tvm"])
    third = model(tmp_path, [])
    third.overheads(["tvm"])
    assert (len(second.client.facts), len(third.client.facts)) == (2, 0)


@dataclass
class Telling(Typed):
    """Answers questions about the machine with the next of its replies."""

    replies: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.facts.append(request)
        return dict(self.replies.pop(0))


def told(path: Path, *replies: dict[str, Any], **options: Any) -> TypedCosts:
    return TypedCosts(
        CostDatabase(path / "costs.sqlite"), client=Telling([], replies=list(replies)), **options
    )


CALLS = {"seconds": 1e-7, "launches": {}, "transitions": {}, "doubtful": True}


def test_a_doubtful_fact_holds_where_nothing_came_of_measuring_it_again(tmp_path: Path) -> None:
    """A locked compile finds it, so it has to be what the compile before has used."""
    told(tmp_path, CALLS).overheads(["tvm"])
    again = told(tmp_path, {"reason": "it crashed"}, {"reason": "it crashed"})
    with pytest.warns(UserWarning, match="kernel calls could not be timed"):
        assert again.overheads(["tvm"]).launch_seconds == 1e-7
    assert again.overheads(["tvm"]).launch_seconds == 1e-7 and not again.client.replies  # type: ignore[attr-defined]
    assert told(tmp_path, locked=True).overheads(["tvm"]).launch_seconds == 1e-7


def test_a_compile_uses_the_sure_fact_that_a_doubtful_one_does_not_replace(tmp_path: Path) -> None:
    told(tmp_path, {**CALLS, "doubtful": False}).overheads(["tvm"])
    for options in ({"remeasure": True}, {"locked": True}):
        found = told(tmp_path, {**CALLS, "seconds": 9e-7}, **options).overheads(["tvm"])
        assert found.launch_seconds == 1e-7


@dataclass
class ByBackend(Typed):
    """Answers with a cost for each backend."""

    costs: Mapping[str, Cost] = field(default_factory=dict)

    def compare(
        self, request: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Answer]:
        self.asked += candidates
        return {key: self.costs[asked["backend"]] for key, asked in candidates.items()}


@dataclass(frozen=True)
class BoundedCosts(TypedCosts):
    """Kernels of ``slow`` have lower bounds with which no plan contains them."""

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        return {workload.key: 5e-6 if workload.backend == "slow" else 0.0 for workload in workloads}


def test_a_compile_has_the_doubtful_costs_that_it_does_not_measure_again(tmp_path: Path) -> None:
    """A locked compile begins with them, and has to find the same plan."""
    slow = fake_backend("slow", "relax.nn.relu", "relax.exp", "relax.tanh")
    answers = {"slow": replace(NOISY, seconds=9e-6, high=9e-6), "tvm": replace(SURE, seconds=1e-6, low=1e-6)}

    def estimator(**options: Any) -> BoundedCosts:
        database = CostDatabase(tmp_path / "costs.sqlite")
        return BoundedCosts(database, client=ByBackend([], costs=answers), **options)

    with only_backends(slow), Target("llvm"):
        mod = AnnotateCandidates()(IRModule({"main": graphs.chain()}))
        first, second = estimator(), estimator()
        first.costs(list(workloads(mod["main"], first).values()))
        found = [
            COSTS.read(EstimateNeededCosts(model)(mod)["main"]).by_key
            for model in (second, estimator(locked=True))
        ]
    assert not second.client.asked, "no plan near the cheapest has its kernels"
    assert found[0] == found[1] and all(cost.seconds for cost in found[0].values())


def test_what_was_stopped_measures_nothing_more(tmp_path: Path) -> None:
    stopped = model(tmp_path, [SURE])
    stopped.stop()
    (cost,) = stopped.costs([kernel()]).values()
    assert (cost.seconds, cost.origin, cost.reason) == (None, UNKNOWN, "not measured: it was stopped")
    assert stopped.is_budget_spent() and not stopped.client.asked


def test_the_budget_of_a_locked_database_is_never_spent(tmp_path: Path) -> None:
    """ChooseThreads ends with the budget: how long a compile takes would decide which costs it reads."""
    assert model(tmp_path, [], budget_seconds=0.0).is_budget_spent()
    assert not model(tmp_path, [], budget_seconds=0.0, locked=True).is_budget_spent()


def test_what_a_question_had_no_time_for_is_unknown_and_not_kept(tmp_path: Path) -> None:
    late = model(tmp_path, [LATE], budget_seconds=100.0)
    (cost,) = late.costs([kernel()]).values()
    assert (cost.seconds, cost.origin) == (None, UNKNOWN)
    assert cost.reason == f"{OUT_OF_TIME}100 s was spent"
    again = model(tmp_path, [SURE], budget_seconds=100.0)
    assert [cost.seconds for cost in again.costs([kernel()]).values()] == [2e-6]


@pytest.mark.parametrize(("spent", "seconds"), [(0.0, 75.0), (40.0, 35.0), (70.0, 25.0)])
def test_a_question_has_the_rest_of_the_budget_and_a_late_one_a_quarter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spent: float, seconds: float
) -> None:
    costs = model(tmp_path, [], budget_seconds=100.0)
    monkeypatch.setattr(costs._session, "seconds_since_start", lambda: spent)
    assert costs._seconds_to_answer() == seconds
    assert model(tmp_path, [])._seconds_to_answer() == math.inf


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [(FailureKind.HANG, 2e-6), (FailureKind.OUT_OF_MEMORY, 2e-6), (FailureKind.CRASH, None)],
)
def test_a_failure_that_another_machine_may_have_caused_takes_no_cost_away(
    tmp_path: Path, kind: FailureKind, seconds: float | None
) -> None:
    """A database may be that of several machines, and quarantine holds for all of them."""
    costs = model(tmp_path, [SURE])
    costs.costs([kernel()])
    version = costs._fingerprints().quarantine("tvm")
    costs._opened().quarantine(Quarantined(kernel().key, version, "relu", "tvm", kind, "it failed"))
    assert [cost.seconds for cost in model(tmp_path, []).costs([kernel()]).values()] == [seconds]


def test_a_pair_is_at_the_level_of_the_kernel_that_was_known(tmp_path: Path) -> None:
    """The machine is twice as slow now: the new kernel costs half as much as the known one, as it was measured."""
    known, other = kernel(), replace(kernel(), backend="toy")
    model(tmp_path, [SURE]).costs([known])
    pair = model(tmp_path, [Cost(4e-6, 4e-6, 4e-6, 9), Cost(2e-6, 2e-6, 2e-6, 9)])
    found = pair.compared([known, other])
    assert (found[known.key].seconds, found[other.key].seconds) == (2e-6, pytest.approx(1e-6))
    assert pair.compared([known, other]) == {
        key: replace(cost, origin="database") for key, cost in found.items()
    }


def test_the_plan_says_what_it_may_lose_by_doubtful_costs() -> None:
    """The plan's kernels may cost 9 in all, and those of the other backend 3 x 1: two thirds may be lost."""
    slow = fake_backend("slow", "relax.nn.relu", "relax.exp", "relax.tanh")
    with only_backends(slow), Target("llvm"):
        func = AnnotateCandidates()(IRModule({"main": graphs.chain()}))["main"]

        def cost(candidate: Candidate) -> Cost:
            if candidate.backend == "slow":
                return Cost(2.0, 2.0, 3.0, 9, is_doubtful=True)
            return Cost(2.5, 1.0, 4.0, 9, is_doubtful=True) if len(candidate.indexes) == 1 else Cost(99.0)

        candidates = CANDIDATES.read(func)
        costs = Costs({str(c.id): cost(c) for c in candidates}, {c.id: str(c.id) for c in candidates})
        plan = PLAN.read(SearchPartition()(IRModule({"main": COSTS.write(func, costs)}))["main"])
    assert plan.seconds == 6.0 and plan.doubt == pytest.approx(2 / 3)


@contextmanager
def other_work() -> Iterator[None]:
    """Four processes that compute all the time, for a minute at most. They are not children of this process."""
    started = f"timeout 60 {sys.executable} -c 'while True: pass' > /dev/null 2>&1 & echo $!"
    pids = [
        int(subprocess.run(["sh", "-c", started], check=True, capture_output=True).stdout) for _ in range(4)
    ]
    time.sleep(0.3)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)


def test_work_of_others_is_seen_and_our_own_is_not() -> None:
    with other_work():
        watch = LoadWatch()
        time.sleep(0.5)
        assert watch.load().is_busy
    watch = LoadWatch()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    own = subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert own.returncode == 0 and watch.load().others < 2.0


def test_on_a_full_machine_runs_are_put_off_or_do_not_count() -> None:
    """A kernel of 10 ms of work, where each core is wanted by others: what counts ran without them, or is doubtful."""

    def work() -> None:
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass

    runner = Runner(tvm_ffi.convert(work), [])
    with other_work():
        (timed,) = runtime.time_in_turns([runner], max_seconds=0.1, max_warmup_seconds=0.0)
    assert timed.is_doubtful or max(timed.seconds) < 0.013
