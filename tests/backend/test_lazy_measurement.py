"""Bounds against real costs, and a real lazy search against the eager one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from unity_collage import runtime
from unity_collage.annotations import CANDIDATES, COSTS
from unity_collage.cost.asking import workloads
from unity_collage.cost.lazy import Search, lazy_costs
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import CollageError, MissingCost
from unity_collage.graph import DataflowGraph
from unity_collage.machine import peaks as machines
from unity_collage.machine.last_level import caches
from unity_collage.machine.load import Load
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import AnnotateCandidates, EstimateCosts
from unity_collage.plan.costs import Costs
from unity_collage.plan.problem import problem_of
from unity_collage.runtime import libraries
from unity_collage.search import Problem, cheapest_cover
from unity_collage.target import host_target


def small_net() -> relax.Function:
    """Two equal convolutions with ReLU, a 1x1 one and a sum."""
    rng = np.random.default_rng(0)
    weights = [
        rng.standard_normal(shape, dtype="float32")
        for shape in ((3, 3, 32, 32), (3, 3, 32, 32), (1, 1, 32, 32))
    ]
    x = relax.Var("x", relax.TensorType((1, 28, 28, 32), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for weight in weights:
                padding = (weight.shape[0] // 2,) * 2
                call = R.nn.conv2d(
                    value, relax.const(weight), padding=padding, data_layout="NHWC", kernel_layout="HWIO"
                )
                value = builder.emit(R.nn.relu(builder.emit(call)))
            value = builder.emit_output(R.add(value, x))
        builder.emit_func_output(value)
    return builder.get()["main"]


@pytest.fixture
def model(tmp_path: Path) -> MeasuredCost:
    return MeasuredCost(CostDatabase(tmp_path / "costs.sqlite"))


@pytest.fixture
def target() -> Target:
    return host_target()


def annotated(target: Target) -> IRModule:
    with target:
        return AnnotateCandidates()(IRModule({"main": small_net()}))


def problem(func: relax.Function, costs: Costs) -> Problem:
    return problem_of(DataflowGraph(func), CANDIDATES.read(func), costs)


def test_the_machine_is_measured_once(model: MeasuredCost, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.database is not None
    first = machines.machine(model.database)
    monkeypatch.setattr(machines, "measured_apart", lambda _caches: pytest.fail("measured again"))
    assert machines.machine(model.database) == first
    assert first.threads == runtime.num_threads() and first.flops > 1e9
    rates = [rate for _, rate in first.reads]
    here = caches(model.database)
    assert rates == sorted(rates, reverse=True)
    assert [evicted for evicted, _ in first.weights] == [2 * here.l2_bytes, here.all_bytes]


def test_a_locked_model_does_not_measure_the_machine(model: MeasuredCost, fastest_machine: None) -> None:
    with pytest.raises(MissingCost, match="the peaks of this machine are not in"):
        MeasuredCost(model.database, locked=True).lower_bounds([])


def test_a_fact_about_programs_holds_for_one_version_of_their_backends(
    model: MeasuredCost, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = iter("abc")

    def known(*backends: str) -> str | None:
        with target:
            return model.known_or_measured("program 1", backends, "the program", lambda: next(measured))

    assert [known("tvm"), known("kernels"), known("kernels", "tvm")] == ["a", "b", "b"]
    version = libraries.version
    monkeypatch.setattr(libraries, "version", lambda name: "9" if name == "kernels" else version(name))
    assert [known("tvm"), known("kernels")] == ["a", "c"]


def test_a_doubtful_fact_about_programs_holds_where_measuring_it_again_fails(
    model: MeasuredCost, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A locked compile finds it, so it has to be what the compile before has used."""

    def failing() -> str:
        raise CollageError("no memory is left")

    def known(asked: MeasuredCost, measure: Callable[[], str] = failing) -> str | None:
        with target:
            return asked.known_or_measured("program 2", ("tvm",), "the program", measure)

    monkeypatch.setattr(Load, "is_busy", True)
    assert known(model, lambda: "a") == "a"
    again = MeasuredCost(model.database)
    assert [known(again), known(again), known(MeasuredCost(model.database, locked=True))] == ["a", "a", "a"]
    with pytest.raises(CollageError, match="no memory is left"), target:
        again.known_or_measured("program 3", ("tvm",), "the program", failing)


def test_a_budget_of_nothing_is_spent(model: MeasuredCost) -> None:
    assert replace(model, budget_seconds=0.0).is_budget_spent()
    assert not model.is_budget_spent()


def test_lazy_costs_are_above_their_bounds_and_give_the_eager_plan(
    model: MeasuredCost, target: Target, fastest_machine: None
) -> None:
    mod = annotated(target)
    func = mod["main"]
    with target:
        lazy = lazy_costs(func, model, Search(lambda costs: problem(func, costs)))
        bounds = model.lower_bounds(list(workloads(func, model).values()))
        eager = COSTS.read(EstimateCosts(model)(mod)["main"])
    costed = {key: cost.seconds for key, cost in eager.by_key.items() if cost.seconds is not None}
    assert {key: seconds for key, seconds in costed.items() if seconds < bounds[key]} == {}
    found, optimum = cheapest_cover(problem(func, lazy)), cheapest_cover(problem(func, eager))
    assert found.seconds == pytest.approx(optimum.seconds)
