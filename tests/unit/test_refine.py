"""What the loop decides, on given timings; no program runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN, SCHEDULES
from unity_collage.cost.model import Workload
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import CollageError
from unity_collage.feedback import Refinement
from unity_collage.feedback.breeding import Breeding, bred
from unity_collage.feedback.candidates import GREEDY, OURS, Choice, alone, choices
from unity_collage.feedback.comparison import winner_of
from unity_collage.feedback.loop import FeedbackLoop
from unity_collage.feedback.observed import Observation, with_all_observed
from unity_collage.feedback.records import choice_of, described, fingerprint_of, records_of
from unity_collage.feedback.refine import learn
from unity_collage.passes import AnnotateCandidates
from unity_collage.passes.estimate_needed_costs import EstimateNeededCosts
from unity_collage.plan.candidate import VIEW, Candidate
from unity_collage.plan.costs import UNKNOWN, Cost, Costs
from unity_collage.plan.plan import Plan, PlannedKernel
from unity_collage.profile.kernels import KernelProfiler, Run
from unity_collage.search import Option, Problem
from unity_collage.search.evolutionary import EvolutionSettings
from unity_collage.target import host_target
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost


@pytest.mark.parametrize(
    ("medians", "winner"),
    [
        ({OURS: [1.0, 1.0], "tvm": [1.1, 1.2]}, OURS),
        ({OURS: [1.0, 1.0], "tvm": [0.9, 0.9]}, "tvm"),
        ({OURS: [1.0, 1.0], "tvm": [0.995, 0.995]}, OURS),
        ({OURS: [1.0, 1.0, 1.0], "tvm": [0.5, 0.5, 1.1]}, OURS),
        ({OURS: [1.0] * 7, "tvm": [0.5] * 6 + [1.1]}, "tvm"),
        ({"greedy": [2.0], "tvm": [1.0]}, "tvm"),
    ],
    ids=[
        "ours is faster",
        "another is faster",
        "a tie is ours",
        "it loses one of three",
        "it loses one of seven",
        "ours does not run",
    ],
)
def test_the_fastest_program_wins(medians: dict[str, list[float]], winner: str) -> None:
    assert winner_of(medians, margin=0.01) == winner


def test_drift_between_rounds_decides_nothing() -> None:
    """The machine was three times slower in the second round; in each ours was the faster."""
    assert winner_of({OURS: [1.0, 3.0, 3.0], "tvm": [1.2, 3.6, 3.6]}, margin=0.01) == OURS


def _problem() -> Problem:
    """Two nodes in a row: the library has each, TVM both alone and together."""
    options = (
        Option(0, 0b01, 2.0, backend="lib"),
        Option(1, 0b10, 5.0, backend="lib"),
        Option(2, 0b01, 3.0, backend="tvm"),
        Option(3, 0b10, 3.0, backend="tvm"),
        Option(4, 0b11, 5.5, backend="tvm"),
    )
    return Problem(((), (0,)), 0, options)


def test_what_a_user_would_have_picked_competes() -> None:
    found = {name: choice for name, choice, _ in choices({"main": _problem()}, ("lib", "tvm"))}
    assert found == {OURS: {"main": (0, 3)}, GREEDY: {"main": (0, 1)}, "tvm": {"main": (4,)}}


def test_a_forced_backend_leaves_to_tvm_only_what_it_does_not_take() -> None:
    options = tuple(option for option in _problem().options if option.id != 1)
    forced = alone(Problem(((), (0,)), 0, options), "lib")
    assert [option.id for option in forced.options] == [0, 3]


def test_breeding_finds_a_plan_that_costs_do_not_show(tmp_path: Path) -> None:
    """The program with TVM's pair is the fastest as a whole, and a second search goes on from the file."""
    asked: list[tuple[int, ...]] = []

    def measured(plan: dict[str, tuple[int, ...]]) -> float:
        asked.append(plan["main"])
        return 1.0 if plan["main"] == (2, 3) else 2.0

    breeding = Breeding(
        settings=EvolutionSettings(population=8, generations=3), state=tmp_path / "state.json"
    )
    base = {"main": (0, 3)}
    assert bred({"main": _problem()}, base, measured, breeding) == {"main": (2, 3)}
    before = len(asked)
    assert bred({"main": _problem()}, base, measured, breeding) == {"main": (2, 3)}
    assert len(asked) == before


def test_a_breeding_that_is_ended_goes_on_from_what_it_has_measured(tmp_path: Path) -> None:
    asked: list[tuple[int, ...]] = []

    def measured(plan: dict[str, tuple[int, ...]]) -> float:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(plan["main"])
        return 1.0

    state = tmp_path / "state.json"
    breeding = Breeding(settings=EvolutionSettings(population=8, generations=3), state=state)
    with pytest.raises(KeyboardInterrupt):
        bred({"main": _problem()}, {"main": (0, 3)}, measured, breeding)
    assert len(json.loads(state.read_text())["known"]) == 2
    state.write_text("[1]")
    with pytest.raises(CollageError, match="is not the state of a breeding"):
        bred({"main": _problem()}, {"main": (0, 3)}, measured, breeding)


def test_a_breeding_that_the_user_stops_has_the_best_of_what_was_measured(tmp_path: Path) -> None:
    """What was not measured is not stored as what does not work."""
    asked: list[tuple[int, ...]] = []

    def measured(plan: dict[str, tuple[int, ...]]) -> float:
        asked.append(plan["main"])
        return 3.0 - len(asked)

    state = tmp_path / "state.json"
    breeding = Breeding(settings=EvolutionSettings(population=8, generations=3), state=state)
    base: Choice = {"main": (0, 3)}
    best = bred({"main": _problem()}, base, measured, breeding, is_over=lambda: len(asked) == 2)
    assert len(asked) == 2 and best == {"main": asked[1]}
    assert [seconds for _, seconds in json.loads(state.read_text())["known"]] == [2.0, 1.0]


def test_a_breeding_of_another_model_starts_from_the_beginning(tmp_path: Path) -> None:
    """Its groups have as many choices. Those for another plan of the same model have, too, in another order."""
    asked: list[tuple[int, ...]] = []

    def measured(plan: dict[str, tuple[int, ...]]) -> float:
        asked.append(plan["main"])
        return float(len(asked))

    settings = EvolutionSettings(population=8, generations=3)
    breeding = Breeding(settings=settings, state=tmp_path / "state.json")
    for model, base in (("one", (0, 3)), ("other", (0, 3)), ("other", (1, 2))):
        before = len(asked)
        bred({"main": _problem()}, {"main": base}, measured, breeding, model)
        assert len(asked) > before and asked[before] == base


def test_costs_from_the_running_program_replace_those_of_kernels_alone() -> None:
    """Two candidates share a cost: the median of the times of both in place, minus their launch.

    The cost of a candidate that was in no program is scaled by the same factor.
    """
    func = graphs.chain()
    candidates = tuple(Candidate(i, "tvm", "typed", "single", (i,)) for i in range(3))
    costs = Costs(
        {"a": Cost(1.0), "b": Cost(5.0)}, {0: "a", 1: "a", 2: "b"}, launch_seconds=9.0, launches={"tvm": 0.5}
    )
    costed = IRModule({"main": COSTS.write(CANDIDATES.write(func, candidates), costs)})
    both = Observation(_plan(0, 1), ("k0", "k1"), [[2.5, 3.5]])
    second = Observation(_plan(1), ("k1",), [[3.0]])
    learned = COSTS.read(with_all_observed(costed, [both, second])["main"])
    assert learned.by_key["a"].seconds == 2.5 and learned.by_key["a"].origin == "in the program"
    assert learned.by_key["b"].seconds == 12.5 and learned.by_key["b"].origin == "measured"
    assert COSTS.read(costed["main"]).by_key["a"].seconds == 1.0


def _plan(*candidates: int) -> Plan:
    return Plan(tuple(PlannedKernel(c, "tvm", "typed", f"k{c}", (), 1.0) for c in candidates))


class _TypedProfiler:
    """A profiler whose programs take the given times."""

    def __init__(self, seconds: dict[str, list[float] | str]) -> None:
        self.seconds = seconds
        self.removed: list[str] = []
        self.worker = self

    def add(self, name: str, mod: IRModule) -> list[str]:
        if name == "crashing at once, instrumented":
            raise CollageError("it cannot be loaded")
        return [kernel.function for kernel in PLAN.read(mod["main"]).kernels]

    def turns(self, runs: Sequence[Run]) -> list[list[list[float]]]:
        found: list[list[list[float]]] = []
        for run in runs:
            seconds = self.seconds[run.name]
            if isinstance(seconds, str):
                raise CollageError(f"{run.name}: {seconds}")
            assert run.kernels == 2
            found.append([seconds])
        return found

    def remove(self, name: str) -> None:
        self.removed.append(name)


def test_kernels_are_timed_in_all_programs_and_one_that_cannot_be_timed_is_dropped() -> None:
    def mod(*candidates: int) -> IRModule:
        return IRModule({"main": PLAN.write(graphs.chain(), _plan(*candidates))})

    profiler: Any = _TypedProfiler(
        {
            "ours, instrumented": [1.0, 2.0],
            "greedy, instrumented": [3.0, 4.0],
            "onednn, instrumented": "it crashed",
        }
    )
    failed: dict[str, str] = {}
    with FeedbackLoop(profiler, failed.__setitem__) as loop:
        programs = [
            ("ours", mod(0, 1)),
            ("greedy", mod(0, 2)),
            ("onednn", mod(3, 4)),
            ("crashing at once", mod(5, 6)),
        ]
        loop.observe(programs)
        assert failed == {"crashing at once": "it cannot be loaded", "onednn": "it crashed"}
        assert profiler.removed == ["onednn, instrumented"]
        costs = Costs({}, {c: f"key {c}" for c in range(3)})
        observed = [dict(seen.by_key(costs)) for seen in loop.observations.values()]
        assert observed == [{"key 0": [1.0], "key 1": [2.0]}, {"key 0": [3.0], "key 2": [4.0]}]
        assert loop.observations["greedy"].seconds_by_turn == [7.0]
    assert profiler.removed[1:] == ["ours, instrumented", "greedy, instrumented"]


def test_the_loop_ends_when_the_search_has_no_new_plan() -> None:
    profiler: Any = _TypedProfiler({f"{name}, instrumented": [1.0, 1.0] for name in "abc"})
    mod = IRModule({"main": PLAN.write(graphs.chain(), _plan(0, 1))})
    fresh = iter([("b", mod), ("c", mod), None])
    asked: list[int] = []

    def correct(observations: Sequence[Observation]) -> IRModule:
        asked.append(len(observations))
        return mod

    with FeedbackLoop(profiler, _unexpected) as loop:
        loop.observe([("a", mod)])
        loop.run(lambda _: next(fresh), correct, rounds=9)
        assert asked == [1, 2, 3] and list(loop.observations) == ["a", "b", "c"]


def _unexpected(name: str, reason: str) -> None:
    raise AssertionError(f"{name}: {reason}")


def _with_a_crash_in_the_second_round(failed: Callable[[str, str], None]) -> list[str]:
    """The names of the programs that are observed in the end."""
    profiler: Any = _TypedProfiler(
        {"a, instrumented": [1.0, 1.0], "b, instrumented": "it crashed", "c, instrumented": [1.0, 1.0]}
    )
    mod = IRModule({"main": PLAN.write(graphs.chain(), _plan(0, 1))})
    fresh = iter([("b", mod), ("c", mod), None])
    with FeedbackLoop(profiler, failed) as loop:
        loop.observe([("a", mod)])
        loop.run(lambda _: next(fresh), lambda _: mod, rounds=9)
        return list(loop.observations)


def test_a_program_that_fails_later_is_reported_and_the_loop_goes_on() -> None:
    failed: dict[str, str] = {}
    assert _with_a_crash_in_the_second_round(failed.__setitem__) == ["a", "c"]
    assert failed == {"b": "it crashed"}


def test_the_receiver_of_a_failure_may_end_the_loop() -> None:
    with pytest.raises(AssertionError, match="b: it crashed"):
        _with_a_crash_in_the_second_round(_unexpected)


def test_without_feedback_no_kernel_is_timed() -> None:
    comparison: Any = SimpleNamespace(settings=Refinement(feedback=0))  # anything else raises AttributeError
    learn(comparison, ())


def test_a_program_without_kernels_is_timed() -> None:
    worker: Any = SimpleNamespace(kernel_seconds=lambda *_: [])
    assert KernelProfiler(worker, Target("llvm")).turns([Run("a", 0)])[0][0] == []


def test_plans_are_kept_by_what_their_kernels_are_not_by_number() -> None:
    """The same two kernels among candidates with other numbers; a plan is dropped if a kernel's candidate is gone."""
    func = graphs.chain()
    kernels = [Candidate(n, b, "typed", "single", (i,)) for n, (b, i) in enumerate((("lib", 0), ("tvm", 1)))]
    before = IRModule({"main": CANDIDATES.write(func, tuple(kernels))})
    moved = tuple(replace(kernel, id=7 - kernel.id) for kernel in kernels)
    now = IRModule({"main": CANDIDATES.write(func, moved)})
    kept = json.loads(json.dumps(described(before, {"main": (0, 1)})))
    assert choice_of(now, kept) == {"main": (6, 7)}
    assert choice_of(IRModule({"main": CANDIDATES.write(func, moved[:1])}), kept) is None


def test_a_comparison_is_named_by_model_plans_and_settings(tmp_path: Path) -> None:
    def name(
        weight: float,
        plan: tuple[int, ...],
        settings: Refinement,
        threads: int | None = None,
        schedules: dict[str, str] | None = None,
    ) -> str:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((2, 2), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                weights = relax.const(np.full((2, 2), weight, "float32"))
                result = builder.emit_output(relax.op.add(x, weights))
            builder.emit_func_output(result)
        mod = builder.get()
        kernels = tuple(Candidate(n, "tvm", "typed", f"{n}", (n,), threads=threads) for n in range(2))
        costed = IRModule({"main": CANDIDATES.write(graphs.chain(), kernels)})
        costed = costed if schedules is None else costed.with_attr(SCHEDULES, schedules)
        with CostDatabase(tmp_path / "costs.sqlite") as database:
            plans = {OURS: {"main": plan}}
            return records_of(database, costed, mod, plans, settings, host_target()).name

    one = name(1.0, (0, 1), Refinement())
    assert one == name(1.0, (0, 1), Refinement())
    others = [
        name(1.0, (0,), Refinement()),
        name(1.0, (0, 1), Refinement(rounds=3)),
        name(2.0, (0, 1), Refinement()),  # whether programs agree may depend on the weights
        name(1.0, (0, 1), Refinement(), threads=1),
        name(1.0, (0, 1), Refinement(), schedules={"kernel": "[]"}),
        name(1.0, (0, 1), Refinement(), schedules={"kernel": "[1]"}),
    ]
    assert len({one, *others}) == 7


@dataclass(frozen=True)
class Bounded(FixedCost):
    """Given costs, and a lower bound for all; remembers what it was asked, and stops when it is told to."""

    asked: list[str] = field(default_factory=list)
    most: int = 1000

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        if len(self.asked) >= self.most:
            return {workload.key: Cost(None, reason="too late", origin=UNKNOWN) for workload in workloads}
        self.asked.extend(workload.key for workload in workloads)
        return super().costs(workloads)

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        return {workload.key: 1.0 if workload.backend == "tvm" else 4.0 for workload in workloads}


SLOW = fake_backend("slow", "relax.nn.relu", "relax.exp", "relax.tanh")


def _measured_on_a_budget(model: Bounded) -> list[Cost]:
    with only_backends(SLOW), Target("llvm"):
        annotated = AnnotateCandidates()(IRModule({"main": graphs.chain()}))
        costs = COSTS.read(EstimateNeededCosts(model, ("slow", "tvm"))(annotated)["main"])
    return [cost for key, cost in costs.by_key.items() if key.startswith("slow")]


def test_on_a_budget_our_plan_is_measured_first_and_then_what_else_competes() -> None:
    model = Bounded({"slow": 9.0, "tvm": 2.0})
    slow = _measured_on_a_budget(model)
    backends = [key.split(":")[0] for key in model.asked]
    first = backends.index("slow")
    assert first > 0 and set(backends[:first]) == {"tvm"}, "no plan of ours needs the slow ones"
    assert [cost.seconds for cost in slow] == [9.0] * 3, "greedy and slow alone do"


def test_when_the_budget_is_spent_on_our_plan_the_others_keep_their_bounds() -> None:
    slow = _measured_on_a_budget(Bounded({"slow": 9.0, "tvm": 2.0}, most=1))
    assert [(cost.seconds, cost.bound) for cost in slow] == [(None, 4.0)] * 3


def test_views_have_no_version_that_could_change_a_race() -> None:
    target = host_target()
    assert fingerprint_of(("tvm", VIEW), target) == fingerprint_of(("tvm",), target)
