"""What a pair of backends costs more in turns: measured by size, charged by size, and never missing in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from unity_collage import host_target
from unity_collage.annotations import COSTS, PLAN
from unity_collage.backends.registry import get
from unity_collage.cost.model import CostModel, Overheads, Workload
from unity_collage.database.costs import CostDatabase
from unity_collage.graph import DataflowGraph
from unity_collage.measure import transitions
from unity_collage.measure.kernel_costs import KernelCosts
from unity_collage.measure.questions import Client, Fingerprints
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.plan.costs import Cost, Costs, at_size
from unity_collage.plan.problem import problem_of
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends

_APART = 2e-6
_SMALL, _MIDDLE, _LARGE = transitions.SIZES


@pytest.mark.parametrize(
    ("more", "seconds"),
    [
        ([6e-6, 0.0, 6e-6], 0.0),
        ([6e-6] * 11 + [0.1e-6], 0.0),
        ([0.4e-6] * 12, 0.0),  # less than two calls cost
        ([6e-6, 5e-6, 4e-6] * 4, 2.5e-6),
    ],
)
def test_a_transition_shows_in_every_round(
    monkeypatch: pytest.MonkeyPatch, more: Sequence[float], seconds: float
) -> None:
    rounds = iter(more)

    def chains(_probes: object, pairs: Sequence[tuple[str, str]], _target: object) -> dict[Any, Any]:
        def of(size: int) -> Callable[[], tuple[float, float]]:
            return lambda: (_APART + (next(rounds) if size == _MIDDLE else 0.0), _APART)

        return {(*pair, size): of(size) for pair in pairs for size in transitions.SIZES}

    monkeypatch.setattr(transitions, "chains", chains)

    toy = fake_backend("toy", "relax.abs", codegen=_no_code)
    with only_backends(toy):
        found = transitions.transitions(host_target(), [get("tvm"), toy], print)

    points = [(_SMALL, 0.0), (_MIDDLE, pytest.approx(seconds)), (_LARGE, 0.0)]
    assert found.seconds == ({"tvm>toy": points, "toy>tvm": points} if seconds else {})
    assert not found.unknown


def _no_code(functions: Sequence[relax.Function], *_: object) -> list[Any]:
    del functions
    return []


def test_a_backend_without_a_probe_has_a_reason() -> None:
    def fails(*_: object) -> list[Any]:
        raise RuntimeError("no licence")

    without, broken = fake_backend("without", "relax.exp"), fake_backend("broken", "relax.abs", codegen=fails)
    with only_backends(without, broken):
        found = transitions.transitions(host_target(), [without, broken, get("tvm")], print)
    assert found.unknown == {
        "without": "it makes no kernel of any of the operators that are tried",
        "broken": "its probe cannot be built: no licence",
    }


def test_a_pair_whose_probes_do_not_run_has_a_reason_and_the_others_are_measured() -> None:
    lost = fake_backend("lost", "relax.abs", codegen=_no_code)
    toy = replace(get("tvm"), name="toy")
    begun: list[str] = []
    with only_backends(lost, toy):
        found = transitions.transitions(host_target(), [lost, toy, get("tvm")], begun.append)
    assert found.unknown.keys() == {"lost and toy", "lost and tvm"}
    assert all("their probes do not run" in reason for reason in found.unknown.values())
    assert begun == [
        "building probes of lost and toy and tvm",
        "building probes of lost and toy",
        "building probes of lost and tvm",
        "building probes of toy and tvm",
        "measuring transitions between toy and tvm",
    ], "each is a message, so that the limit is for one pair"


@pytest.mark.parametrize(
    ("nbytes", "seconds"),
    [(0, 1.0), (1 << 10, 1.0), (1 << 12, 1.0), (1 << 15, 2.0), (1 << 18, 3.0), (1 << 30, 3.0)],
)
def test_seconds_are_between_those_of_the_sizes_around(nbytes: int, seconds: float) -> None:
    assert at_size([(1 << 12, 1.0), (1 << 18, 3.0)], nbytes) == pytest.approx(seconds)
    assert at_size([(0, 5.0)], nbytes) == 5.0


def test_the_problem_charges_a_value_by_its_bytes() -> None:
    graph = DataflowGraph(_reduced())
    points = ((1 << 10, 1.0), (1 << 20, 21.0))
    problem = problem_of(graph, (), Costs(transitions={"a>b": points}))
    assert [problem.transition("a", "b", value) for value in (0, 1)] == [pytest.approx(11.0), 1.0]
    assert problem.transition("b", "a", 0) == 0.0


def _reduced() -> relax.Function:
    """A value of 32 KiB, and its sum of 4 bytes."""
    x = relax.Var("x", relax.TensorType((64, 128), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            total = builder.emit_output(R.sum(builder.emit(R.exp(x))))
        builder.emit_func_output(total)
    return builder.get()["main"]


@dataclass(frozen=True)
class Unprobed(CostModel):
    """A model that does not know the transitions of a backend."""

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: Cost(1.0) for workload in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return Overheads(unknown={"toy": "it has no probe"})


def test_the_plan_says_which_transitions_are_missing() -> None:
    with only_backends(fake_backend("toy", "relax.nn.relu")), Target("llvm"):
        costed = EstimateCosts(Unprobed())(AnnotateCandidates()(IRModule({"main": graphs.chain()})))
        plan = PLAN.read(SearchPartition()(costed)["main"])
    assert COSTS.read(costed["main"]).skipped == ("transitions of toy count as free: it has no probe",)
    assert "transitions of toy count as free: it has no probe" in plan.remarks


@dataclass
class Answers:
    """A client that answers with the next of its answers."""

    answers: list[dict[str, Any]]
    asked: list[list[str]] = field(default_factory=list[list[str]])

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(list(request["backends"]))
        return self.answers.pop(0)

    def compare(self, request: Mapping[str, Any], candidates: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError


@dataclass(frozen=True)
class Answered(KernelCosts):
    client: Answers = field(default_factory=lambda: Answers([]))

    def _client(self) -> Client:
        return self.client

    def _fingerprints(self) -> Fingerprints:
        return Fingerprints(Target("llvm"), lambda backend: f"of {backend}", lambda backend: f"{backend} 1")


def test_transitions_are_a_fact_of_the_database(tmp_path: Path) -> None:
    database = CostDatabase(tmp_path / "costs.sqlite")
    answer = {"seconds": 1e-7, "launches": {}, "transitions": {"a>b": [[4096, 2e-6]]}, "doubtful": False}
    first = Answered(database, client=Answers([answer])).overheads(["a", "b"])
    again = Answered(database, client=Answers([])).overheads(["b", "a"])
    assert first == again == Overheads(1e-7, {}, {"a>b": ((4096, 2e-6),)})


def test_a_probe_that_ends_the_process_is_a_reason(tmp_path: Path) -> None:
    alone = {"seconds": 1e-7, "launches": {"tvm": 1e-7}, "transitions": {}, "doubtful": False}
    client = Answers([{"reason": "it crashed the process: SIGSEGV"}, alone])
    found = Answered(CostDatabase(tmp_path / "costs.sqlite"), client=client).overheads(["c", "d"])
    assert client.asked == [["c", "d", "tvm"], ["tvm"]]
    assert found.unknown == dict.fromkeys("cd", "a probe of c, d failed: it crashed the process: SIGSEGV")


@pytest.mark.parametrize(("lasting", "asked"), [(False, 1), (True, 0)])
def test_a_failure_that_may_pass_is_asked_about_again(tmp_path: Path, lasting: bool, asked: int) -> None:
    alone = {"seconds": 1e-7, "launches": {}, "transitions": {}, "doubtful": False}
    silent = {"reason": "no answer within 60 s while reading the question", "lasting": lasting}
    database = CostDatabase(tmp_path / "costs.sqlite")
    Answered(database, client=Answers([silent, alone])).overheads(["c", "d"])
    again = Answers([{**alone, "transitions": {"c>d": [[4096, 2e-6]]}}])
    found = Answered(database, client=again).overheads(["c", "d"])
    assert len(again.asked) == asked and bool(found.unknown) == lasting
