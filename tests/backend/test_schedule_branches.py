"""ScheduleBranches: what the running program says is kept, and decides."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.annotations import PLAN
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import CollageError
from unity_collage.feedback import branches as trials
from unity_collage.feedback.branches import Tried, tried
from unity_collage.lowering.branches import Calls, Stage, Step
from unity_collage.lowering.build import build
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import schedule_branches
from unity_collage.passes.schedule_branches import ScheduleBranches
from unity_collage.target import host_target

SHAPE = (1, 14, 14, 32)
CHAIN = 3


def cell() -> IRModule:
    """Two chains of small convolutions and their sum, as in the cells of NASNet."""
    numbers = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            ends: list[relax.Expr] = []
            for size in (3, 5):
                value: relax.Expr = x
                for _ in range(CHAIN):
                    weights = numbers.standard_normal((32, 1, size, size), dtype=np.float32)
                    convolution = R.nn.conv2d(
                        value,
                        relax.const(weights),
                        padding=(size // 2, size // 2),
                        groups=32,
                        data_layout="NHWC",
                    )
                    value = builder.emit(R.tanh(builder.emit(convolution)))
                ends.append(value)
            result = builder.emit_output(R.add(*ends))
        builder.emit_func_output(result)
    return builder.get()


def compiled(database: Path, **options: Any) -> uc.Program:
    return uc.compile(cell(), database=database, backends=["tvm"], **options)


def numbers_of(program: uc.Program) -> np.ndarray:
    return program(np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)).numpy()


@pytest.fixture(scope="module")
def costed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A folder with a database of all costs, but of nothing side by side, and what the program computes."""
    folder = tmp_path_factory.mktemp("costs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_branches, "tried", _failing)
        return folder, numbers_of(compiled(folder / "costs.sqlite"))


@pytest.fixture
def database(costed: tuple[Path, np.ndarray], tmp_path: Path) -> Path:
    """A copy that the test may write to."""
    return Path(shutil.copytree(costed[0], tmp_path / "costs")) / "costs.sqlite"


@pytest.fixture
def expected(costed: tuple[Path, np.ndarray]) -> np.ndarray:
    return costed[1]


def _never(*_: object) -> Tried:
    raise AssertionError("there was no need to measure")


def _failing(*_: object) -> Tried:
    raise CollageError("the process crashed: SIGSEGV")


def _chains(calls: Calls) -> tuple[Stage, ...]:
    """Two lanes, and what joins them."""
    *inside, last = range(len(calls.bindings))
    lanes: tuple[list[int], list[int]] = ([], [])
    for number in inside:
        lane = next((lane for lane in lanes if calls.sources[number] & set(lane)), lanes[bool(lanes[0])])
        lane.append(number)
    return (tuple(map(tuple, lanes)), ((last,),))


def test_a_real_trial_names_an_order_of_all_steps_or_leaves_the_program(
    database: Path, expected: np.ndarray
) -> None:
    tries: list[Tried] = []

    def spy(*args: Any) -> Tried:
        tries.append(tried(*args))
        return tries[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_branches, "tried", spy)
        program = compiled(database)

    (outcome,) = tries
    np.testing.assert_array_equal(numbers_of(program), expected)
    steps = [number for stage in outcome.stages for lane in stage for number in lane]
    assert sorted(steps) == list(range(len(steps)))
    assert (program.plan["main"].branches is not None) == bool(outcome.stages)
    if outcome.stages:
        assert outcome.side_by_side < outcome.split


@pytest.mark.parametrize("locked", [False, True])
def test_what_was_found_is_used_without_another_trial(
    database: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    """The pass runs on one program twice: a second compile may plan another, if a cost could be measured only then."""
    target = host_target()
    monkeypatch.setattr(schedule_branches, "tried", _failing)
    program = compiled(database).mod
    found = lambda mod, calls, *_: Tried(_chains(calls), split=2e-3, side_by_side=1e-3)  # noqa: E731
    with target, CostDatabase(database) as costs:
        monkeypatch.setattr(schedule_branches, "tried", found)
        first = ScheduleBranches(MeasuredCost(costs))(program)
        monkeypatch.setattr(schedule_branches, "tried", _never)
        again = ScheduleBranches(MeasuredCost(costs, locked=locked))(program)

    for scheduled in (first, again):
        plan = PLAN.read(scheduled["main"])
        assert plan.branches.stages == 1 and plan.branches.seconds == 1e-3
        assert "side by side (stages: 1)" in plan.remarks[-1]
        np.testing.assert_array_equal(numbers_of(uc.Program(build(scheduled, target), ["x"])), expected)


def test_a_locked_database_without_a_trial_leaves_the_program(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_branches, "tried", _never)

    plan = compiled(database, locked=True).plan["main"]

    assert plan.branches is None
    assert "branches side by side were not tried: nothing may be measured" in plan.remarks


def test_on_a_spent_budget_nothing_is_tried(
    database: Path, fastest_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_branches, "tried", _never)

    assert compiled(database, budget_seconds=1e-9).plan["main"].branches is None


def test_a_trial_that_fails_says_why_and_is_made_again(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_branches, "tried", _failing)
    program = compiled(database)
    assert program.plan["main"].remarks[-1] == "no branches side by side: the process crashed: SIGSEGV"

    monkeypatch.setattr(schedule_branches, "tried", lambda *_: Tried())
    remark = compiled(database).plan["main"].remarks[-1]
    assert remark == "no two branches are faster side by side than split between all threads"


def test_stages_that_compute_something_else_are_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that keeps something between its calls could do this."""
    monkeypatch.setattr(trials, "stages_of", lambda steps, _: _first_of_each(steps))
    monkeypatch.setattr(trials.ProgramWorker, "error", lambda *_: 0.5)

    remark = compiled(database).plan["main"].remarks[-1]

    assert remark == (
        "no branches side by side: the program with branches side by side computes other numbers: 0.5"
    )


def _first_of_each(steps: list[Step]) -> list[Stage]:
    """A stage of the first kernel of each chain."""
    first, second = (number for number, step in enumerate(steps) if not step.sources)
    rest = [number for number in range(len(steps)) if number not in (first, second)]
    return [((first,), (second,)), *(((number,),) for number in rest)]
