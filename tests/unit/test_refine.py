"""What the loop decides, on typed timings; no program runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, UNKNOWN, VIEW, Candidate, Cost, Costs
from unity_collage.cost.model import Workload
from unity_collage.database.costs import CostDatabase
from unity_collage.feedback import Refinement
from unity_collage.feedback.breeding import Breeding, bred
from unity_collage.feedback.entrants import GREEDY, OURS, alone, entrants
from unity_collage.feedback.in_place import InPlace, Ticking
from unity_collage.feedback.observed import with_observed
from unity_collage.feedback.pricing import EstimateCostsOfEntrants
from unity_collage.feedback.race import winner_of
from unity_collage.feedback.records import circumstances, described, plan_of, records_of
from unity_collage.passes import AnnotateCandidates
from unity_collage.search import Option, Problem
from unity_collage.search.evolutionary import Settings
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
        ({"greedy": [2.0], "tvm": [1.0]}, "tvm"),
    ],
    ids=["ours is faster", "another is faster", "a tie is ours", "ours does not run"],
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
    found = dict(entrants({"main": _problem()}, ("lib", "tvm")))
    assert found == {OURS: {"main": (0, 3)}, GREEDY: {"main": (0, 1)}, "tvm": {"main": (4,)}}


def test_a_forced_backend_leaves_to_tvm_only_what_it_does_not_take() -> None:
    options = tuple(option for option in _problem().options if option.id != 1)
    forced = alone(Problem(((), (0,)), 0, options), "lib")
    assert [option.id for option in forced.options] == [0, 3]


def test_breeding_finds_a_plan_that_prices_do_not_show(tmp_path: Path) -> None:
    """The program with TVM's pair is the fastest as a whole, and a second search goes on from the file."""
    asked: list[tuple[int, ...]] = []

    def measured(plan: dict[str, tuple[int, ...]]) -> float:
        asked.append(plan["main"])
        return 1.0 if plan["main"] == (2, 3) else 2.0

    breeding = Breeding(settings=Settings(population=8, generations=3), state=tmp_path / "state.json")
    base = {"main": (0, 3)}
    assert bred({"main": _problem()}, base, measured, breeding) == {"main": (2, 3)}
    before = len(asked)
    assert bred({"main": _problem()}, base, measured, breeding) == {"main": (2, 3)}
    assert len(asked) == before


def test_prices_from_the_running_program_replace_those_of_kernels_alone() -> None:
    """Two candidates share a price: the median of what both took in place, their launch taken off.

    What was in no program becomes dearer as much as what was.
    """
    func = graphs.chain()
    candidates = tuple(Candidate(i, "tvm", "typed", "single", (i,)) for i in range(3))
    costs = Costs(
        {"a": Cost(1.0), "b": Cost(5.0)}, {0: "a", 1: "a", 2: "b"}, launch_seconds=9.0, launches={"tvm": 0.5}
    )
    priced = IRModule({"main": COSTS.write(CANDIDATES.write(func, candidates), costs)})
    learned = COSTS.read(with_observed(priced, {0: [2.5], 1: [3.5, 3.0]})["main"])
    assert learned.prices["a"].seconds == 2.5 and learned.prices["a"].origin == "in the program"
    assert learned.prices["b"].seconds == 12.5 and learned.prices["b"].origin == "measured"
    assert COSTS.read(priced["main"]).prices["a"].seconds == 1.0


class _TypedTicks:
    """A contest whose programs take what is typed here."""

    def __init__(self, seconds: dict[str, list[float] | str]) -> None:
        self.seconds = seconds
        self.left: list[str] = []

    def ticks(self, name: str, gaps: int, rounds: int) -> list[float] | str:
        assert gaps == 2 and rounds >= 3
        return self.seconds[name]

    def leave(self, name: str) -> None:
        self.left.append(name)


def test_kernels_are_timed_in_all_programs_and_who_cannot_be_timed_is_out() -> None:
    def plan(*candidates: int) -> dict[str, Any]:
        return {"kernels": [{"candidate": c, "function": f"k{c}"} for c in candidates]}

    contest: Any = _TypedTicks(
        {"ours, with ticks": [1.0, 2.0], "greedy, with ticks": [3.0, 4.0], "onednn, with ticks": "it crashed"}
    )
    with InPlace(cast(Any, None), contest) as in_place:
        in_place.programs = {
            "ours": Ticking(plan(0, 1), ["k0", "k1"]),
            "greedy": Ticking(plan(0, 2), ["k0", "k2"]),
            "onednn": Ticking(plan(3, 4), ["k3", "k4"]),
            "tvm": Ticking(plan(5, 6), ["k5", "k6"]),
        }
        assert in_place.run({"ours": 0.01, "greedy": 0.01, "onednn": 0.01}) == {"onednn": "it crashed"}
        assert contest.left == ["tvm, with ticks", "onednn, with ticks"]
        assert in_place.by_candidate() == {0: [1.0, 3.0], 1: [2.0], 2: [4.0]}
        assert in_place.total("greedy") == 7.0
    assert contest.left[2:] == ["ours, with ticks", "greedy, with ticks"]


def test_plans_are_kept_by_what_their_kernels_are_not_by_number() -> None:
    """The same two kernels among candidates with other numbers; what is no candidate any more is no plan."""
    func = graphs.chain()
    kernels = [Candidate(n, b, "typed", "single", (i,)) for n, (b, i) in enumerate((("lib", 0), ("tvm", 1)))]
    before = IRModule({"main": CANDIDATES.write(func, tuple(kernels))})
    moved = tuple(replace(kernel, id=7 - kernel.id) for kernel in kernels)
    now = IRModule({"main": CANDIDATES.write(func, moved)})
    kept = json.loads(json.dumps(described(before, {"main": (0, 1)})))
    assert plan_of(now, kept) == {"main": (6, 7)}
    assert plan_of(IRModule({"main": CANDIDATES.write(func, moved[:1])}), kept) is None


def test_a_race_is_named_by_model_weights_entrants_and_settings(tmp_path: Path) -> None:
    def name(weight: float, plan: tuple[int, ...], settings: Refinement) -> str:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((2, 2), "float32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                weights = relax.const(np.full((2, 2), weight, "float32"))
                result = builder.emit_output(relax.op.add(x, weights))
            builder.emit_func_output(result)
        mod = builder.get()
        kernels = tuple(Candidate(n, "tvm", "typed", f"{n}", (n,)) for n in range(2))
        priced = IRModule({"main": CANDIDATES.write(graphs.chain(), kernels)})
        with CostDatabase(tmp_path / "costs.sqlite") as database:
            plans = {OURS: {"main": plan}}
            return records_of(database, priced, mod, plans, settings, host_target()).name

    one = name(1.0, (0, 1), Refinement())
    assert one == name(1.0, (0, 1), Refinement())
    others = [
        name(2.0, (0, 1), Refinement()),
        name(1.0, (0,), Refinement()),
        name(1.0, (0, 1), Refinement(rounds=3)),
    ]
    assert len({one, *others}) == 4


@dataclass(frozen=True)
class Bounded(FixedCost):
    """Prices typed by hand and a lower bound for all; remembers what it was asked, and stops when it is told to."""

    asked: list[str] = field(default_factory=list)
    most: int = 1000

    def prices(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        if len(self.asked) >= self.most:
            return {workload.key: Cost(None, reason="too late", origin=UNKNOWN) for workload in workloads}
        self.asked.extend(workload.key for workload in workloads)
        return super().prices(workloads)

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        return {workload.key: 1.0 if workload.backend == "tvm" else 4.0 for workload in workloads}


SLOW = fake_backend("slow", "relax.nn.relu", "relax.exp", "relax.tanh")


def _priced_on_a_budget(model: Bounded) -> list[Cost]:
    with only_backends(SLOW), Target("llvm"):
        annotated = AnnotateCandidates()(IRModule({"main": graphs.chain()}))
        costs = COSTS.read(EstimateCostsOfEntrants(model, ("slow", "tvm"))(annotated)["main"])
    return [cost for key, cost in costs.prices.items() if key.startswith("slow")]


def test_on_a_budget_our_plan_is_measured_first_and_then_what_else_competes() -> None:
    model = Bounded({"slow": 9.0, "tvm": 2.0})
    slow = _priced_on_a_budget(model)
    backends = [key.split(":")[0] for key in model.asked]
    first = backends.index("slow")
    assert first > 0 and set(backends[:first]) == {"tvm"}, "no plan of ours needs the slow ones"
    assert [cost.seconds for cost in slow] == [9.0] * 3, "greedy and slow alone do"


def test_when_the_budget_is_spent_on_our_plan_the_others_keep_their_bounds() -> None:
    slow = _priced_on_a_budget(Bounded({"slow": 9.0, "tvm": 2.0}, most=1))
    assert [(cost.seconds, cost.bound) for cost in slow] == [(None, 4.0)] * 3


def test_views_have_no_version_that_could_change_a_race() -> None:
    target = host_target()
    assert circumstances(("tvm", VIEW), target) == circumstances(("tvm",), target)
