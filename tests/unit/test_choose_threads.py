"""ChooseThreads: a short kernel that is not slower on one thread gets one: its candidate, cost and function say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN, threads_of
from unity_collage.cost.model import Capability, CostModel, Overheads, Workload
from unity_collage.errors import MissingCost
from unity_collage.operators import recurrent
from unity_collage.passes import AnnotateCandidates, ChooseThreads, EstimateCosts, SearchPartition
from unity_collage.passes.choose_threads import meetings
from unity_collage.plan.costs import Cost
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOLD = replace(fake_backend("toy", "relax.nn.relu"), limits_threads=True)
DEAF = fake_backend("toy", "relax.nn.relu")
TWO_CORES = Target({"kind": "llvm", "num-cores": 2})
SINGLE = "toy:relu (threads: 1)"


@dataclass(frozen=True)
class TimesInTurns(CostModel):
    """Costs, and other costs for kernels that are timed in turns."""

    capabilities = frozenset({Capability.COMPARE})

    alone: FixedCost
    in_turns: FixedCost
    spent: bool = False
    locked: bool = False
    asked: list[list[str]] = field(default_factory=list)

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return self.alone.costs(workloads)

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return self.alone.overheads(backends)

    def compared(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        if self.locked:
            raise MissingCost("not known")
        self.asked.append([f"{w.backend}:{w.label}" for w in workloads])
        return self.in_turns.costs(workloads)

    def is_budget_spent(self) -> bool:
        return self.spent


def model_of(single: float, seconds: float = 1e-6, **more: bool) -> TimesInTurns:
    """The kernel of ``toy`` costs ``seconds``; on one thread it takes ``single`` times what it takes on all."""
    alone = FixedCost({"toy": seconds, "tvm:exp+tanh": seconds}, default=10 * seconds)
    return TimesInTurns(alone, FixedCost({"toy": 2e-6, SINGLE: 2e-6 * single}, default=1.0), **more)


def chosen(model: CostModel, backend: object = TOLD, target: Target = TWO_CORES) -> tuple[IRModule, IRModule]:
    """A measured module, before and after ChooseThreads."""
    with only_backends(backend), target:  # pyright: ignore[reportArgumentType]
        costed = EstimateCosts(model)(AnnotateCandidates()(IRModule({"main": graphs.chain()})))
        return costed, ChooseThreads(model)(costed)


def threads(mod: IRModule) -> set[int | None]:
    """The numbers of threads of the candidates of ``toy``."""
    return {c.threads for c in CANDIDATES.read(mod["main"]) if c.backend == "toy"}


@pytest.mark.parametrize(("single", "expected"), [(0.5, 1), (1.0, 1), (1.1, None)])
def test_the_faster_one_is_the_candidate_and_a_tie_goes_to_one_thread(
    single: float, expected: int | None
) -> None:
    model = model_of(single)
    _, after = chosen(model)
    assert threads(after) == {expected}
    assert [names for names in model.asked if "toy:relu" in names] == [["toy:relu", SINGLE]]


@dataclass(frozen=True)
class SometimesLate(TimesInTurns):
    """A thread is late in every third run: the interval of the kernel on all threads is wide."""

    def compared(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        found = super().compared(workloads)
        late = {w.key: replace(found[w.key], high=5e-6) for w in workloads if f"toy:{w.label}" == "toy:relu"}
        return found | late


def test_threads_that_are_late_now_and_then_lose_to_one_that_is_a_little_slower() -> None:
    model = SometimesLate(**{item.name: getattr(model_of(1.1), item.name) for item in fields(TimesInTurns)})
    _, after = chosen(model)
    assert threads(after) == {1}


def test_the_steps_of_a_recurrent_layer_are_meetings() -> None:
    def layer(steps: int) -> relax.Function:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((steps, 1, 32), "float32"))
        state = relax.Var("state", relax.TensorType((1, 8), "float32"))
        weights = relax.const(np.ones((8, 32), "float32"))
        with builder.function("main", [x, state]):
            builder.emit_func_output(builder.emit(recurrent.lstm(x, weights, state, state)))
        return builder.get()["main"]

    recurrent.register()
    assert [meetings(layer(steps)) for steps in (1, 50)] == [1, 50]
    assert meetings(graphs.chain()) == 1


def test_the_cost_keeps_its_level() -> None:
    """In turns the kernels took twice as long as the cost says: only their ratio counts."""
    _, after = chosen(model_of(0.5))
    costs = COSTS.read(after["main"])
    (told,) = [c for c in CANDIDATES.read(after["main"]) if c.threads == 1]
    assert costs.by_key[costs.keys[told.id]].seconds == pytest.approx(0.5e-6)


def test_the_kernel_of_the_plan_has_the_threads() -> None:
    model = model_of(0.5)
    _, after = chosen(model)
    with only_backends(TOLD), TWO_CORES:
        mod = SearchPartition()(after)
    (kernel,) = [k for k in PLAN.read(mod["main"]).kernels if k.backend == "toy"]
    assert kernel.threads == 1
    func = mod[kernel.function]
    assert isinstance(func, relax.Function)
    assert threads_of(func) == 1


@pytest.mark.parametrize(
    ("model", "backend", "target"),
    [
        pytest.param(model_of(0.5, seconds=1e-3), TOLD, TWO_CORES, id="long"),
        pytest.param(model_of(0.5), DEAF, TWO_CORES, id="cannot be told"),
        pytest.param(model_of(0.5), TOLD, Target({"kind": "llvm", "num-cores": 1}), id="one core"),
        pytest.param(model_of(0.5, spent=True), TOLD, TWO_CORES, id="no time left"),
        pytest.param(model_of(0.5, locked=True), TOLD, TWO_CORES, id="locked"),
        pytest.param(FixedCost({"toy": 1e-6}, default=1e-5), TOLD, TWO_CORES, id="a formula"),
    ],
)
def test_others_stay_as_they_are(model: CostModel, backend: object, target: Target) -> None:
    before, after = chosen(model, backend, target)
    assert threads(after) == {None}
    costs = COSTS.read(after["main"])
    assert replace(costs, skipped=()) == COSTS.read(before["main"])
    told = "short kernels keep all threads: FixedCost cannot time kernels for one computation in turns"
    assert costs.skipped == ((told,) if isinstance(model, FixedCost) else ())


def test_kernels_of_tvm_that_are_not_shared_are_not_asked() -> None:
    """``chain`` is so small that its kernels are on one core by themselves."""
    model = TimesInTurns(FixedCost(default=1e-6), FixedCost(default=1e-6))
    chosen(model)
    assert not any(name.startswith("tvm:") for names in model.asked for name in names)


def test_every_binding_is_kept() -> None:
    before, after = chosen(model_of(0.5))
    bare = [mod["main"].without_attr(COSTS.name).without_attr(CANDIDATES.name) for mod in (before, after)]
    assert bare[0].script() == bare[1].script()
