"""Whole programs against each other, in the worker that really runs them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import making
from unity_collage.errors import CollageError, MissingCost
from unity_collage.feedback import Refinement, records, refine
from unity_collage.feedback.builder import ProgramBuilder, built_by_tvm
from unity_collage.feedback.comparison import STOCK
from unity_collage.feedback.settings import BY_DEFAULT
from unity_collage.lowering.build import build, link, lower
from unity_collage.measure.measured import MeasuredCost
from unity_collage.plan.comparison import ProgramComparison
from unity_collage.plan.encoding import decode, encode
from unity_collage.profile.instrument import called_kernels, instrumented
from unity_collage.profile.programs import ProgramWorker
from unity_collage.testing import graphs

QUICK = Refinement(rounds=3, round_seconds=0.002)


def _module() -> IRModule:
    return IRModule({"main": graphs.diamond()})


def test_the_result_is_the_winner_and_its_numbers_are_right(tmp_path) -> None:
    told: list[str] = []
    program = uc.compile(_module(), database=tmp_path / "costs.sqlite", refine=QUICK, tell=told.append)
    x = np.random.default_rng(0).standard_normal(graphs.SHAPE, dtype=np.float32)
    top = np.maximum(x, 0)
    np.testing.assert_allclose(program(x).numpy(), np.exp(top) + np.tanh(top), rtol=1e-5)
    report = program.plan["main"].comparison
    names = [entry.name for entry in report.programs]
    assert {"collage", STOCK} <= set(names)
    assert all((entry.seconds or 0) > 0 or entry.reason for entry in report.programs)
    assert report.winner in names
    assert decode(ProgramComparison, json.loads(json.dumps(encode(report)))) == report
    assert "timing whole programs in turns" in told


def test_programs_of_open_sizes_are_timed_at_the_samples(tmp_path) -> None:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            a = R.exp(R.nn.relu(x))
            R.output(a)
        return a

    sizes = {"n": [1, 8, 32]}
    program = uc.compile(
        IRModule({"main": main}), database=tmp_path / "costs.sqlite", refine=QUICK, shapes=sizes
    )
    report = program.plan["main"].comparison
    assert report.samples == 3 and (report.predicted, report.measured) == (None, None)
    assert all(entry.seconds or entry.reason for entry in report.programs)
    for rows in (1, 3, 32):
        x = np.random.default_rng(rows).standard_normal((rows, 4), dtype=np.float32)
        np.testing.assert_allclose(program(x).numpy(), np.exp(np.maximum(x, 0)), rtol=1e-5)


def test_what_has_no_inputs_to_draw_cannot_be_compared(tmp_path) -> None:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n"])) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            R.output(a)
        return a

    with pytest.raises(CollageError, match="programs cannot be compared: parameter s is not a tensor"):
        uc.compile(IRModule({"main": main}), database=tmp_path / "costs.sqlite", refine=QUICK)


def test_the_clock_is_read_behind_each_kernel() -> None:
    target = uc.host_target()
    x = np.zeros(graphs.SHAPE, np.float32)
    lowered = lower(_module(), target)
    kernels = called_kernels(lowered["main"])
    assert len(kernels) >= 1
    with ProgramWorker([[x]], threads=1) as worker:
        assert worker.add("instrumented", link(instrumented(lowered), target)) is None
        seconds = worker.kernel_seconds("instrumented", len(kernels), rounds=5)
    assert len(seconds) == len(kernels) and all(value > 0 for value in seconds)


def test_a_program_is_timed_with_denormal_numbers_and_without() -> None:
    x = np.full(graphs.SHAPE, 1e-39, np.float32)
    with ProgramWorker([[x]], threads=1) as worker:
        assert worker.add("ours", build(_module(), uc.host_target())) is None
        found = worker.denormals("ours")
    assert not isinstance(found, str) and min(found) > 0


def test_the_worker_says_how_long_programs_ran_so_far() -> None:
    x = np.zeros(graphs.SHAPE, np.float32)
    with ProgramWorker([[x]], threads=1) as worker:
        for name in ("ours", "theirs"):
            assert worker.add(name, build(_module(), uc.host_target())) is None
        first = worker.seconds_so_far("ours")
        found = worker.once(["theirs", "ours"])
        assert not isinstance(first, str) and not isinstance(found, str), (first, found)
        assert len(found) == 2 and 0 < found[1] <= first


def test_a_program_that_crashes_is_dropped_and_the_others_go_on() -> None:
    target = uc.host_target()
    x = np.zeros(graphs.SHAPE, np.float32)
    with ProgramWorker([[x]], threads=1) as worker:
        assert worker.add("good", build(_module(), target)) is None
        reason = worker.add("crash", build(_crashing(), target))
        assert reason is not None and "SIGABRT" in reason
        worker.remove("crash")  # it was never in
        medians = worker.timed_in_turns(["good"], rounds=2, round_seconds=0.001)
    assert len(medians["good"]) == 2


def _crashing() -> IRModule:
    """A call of the C library's ``abort``, which no handler of exceptions survives."""

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(graphs.SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            gvar = builder.add_func(_aborting(), "aborting")
            result = builder.emit_output(relax.call_tir(gvar, [x], out_ty=x.ty))
        builder.emit_func_output(result)
    return builder.get()


def _aborting() -> tvm.tirx.PrimFunc:
    from tvm.script import tirx as T

    @T.prim_func(private=True)
    def aborting(x: T.Buffer(graphs.SHAPE, "float32"), y: T.Buffer(graphs.SHAPE, "float32")):
        T.evaluate(T.call_extern("void", "abort"))

    return aborting


def patient(database: Path, locked: bool = False) -> MeasuredCost:
    """Costs with a long limit: a measurement that is given up on a busy machine keeps nothing."""
    return MeasuredCost(uc.CostDatabase(database), timeout_seconds=600.0, locked=locked)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the costs of all kernels that QUICK needs, and no comparison with its settings."""
    path = tmp_path_factory.mktemp("costs") / "costs.sqlite"
    with uc.CostDatabase(path) as database:
        settings = replace(BY_DEFAULT, hopeless=QUICK.hopeless)
        uc.compile(_module(), estimator=MeasuredCost(database, timeout_seconds=600.0), refine=settings)
    return path


@pytest.fixture
def database(measured: Path, tmp_path: Path) -> Path:
    """A copy that the test may write to."""
    return Path(shutil.copy(measured, tmp_path / "costs.sqlite"))


def test_a_second_compile_does_not_compare_again(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = uc.compile(_module(), estimator=patient(database), refine=QUICK).plan["main"].comparison
    monkeypatch.setattr(refine, "ProgramWorker", lambda *_: pytest.fail("compared again"))
    program = uc.compile(_module(), estimator=patient(database, locked=True), refine=QUICK)
    assert program.plan["main"].comparison == replace(first, origin="database")
    x = np.random.default_rng(0).standard_normal(graphs.SHAPE, dtype=np.float32)
    np.testing.assert_allclose(
        program(x).numpy(), np.exp(np.maximum(x, 0)) + np.tanh(np.maximum(x, 0)), rtol=1e-5
    )


def test_a_locked_compile_takes_the_last_comparison_where_its_plans_are_others(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a compile measures behind its search changes what the next one finds."""
    first = uc.compile(_module(), estimator=patient(database), refine=QUICK).plan["main"].comparison
    monkeypatch.setattr(records, "described", lambda *_: {"main": [["another", "plan"]]})
    again = uc.compile(_module(), estimator=patient(database, locked=True), refine=QUICK)
    assert again.plan["main"].comparison == replace(first, origin="database")


def test_another_comparison_of_a_locked_database_is_an_error(database: Path) -> None:
    with pytest.raises(
        MissingCost, match=r"no comparison of these programs is in .*costs.sqlite, and it is locked"
    ):
        uc.compile(_module(), estimator=patient(database, locked=True), refine=QUICK)


def test_stock_tvm_that_cannot_be_built_is_dropped_with_its_reason(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProgramBuilder, "stock", _refuse)
    report = uc.compile(_module(), database=database, refine=QUICK).plan["main"].comparison
    reasons = {entry.name: entry.reason for entry in report.programs}
    assert reasons[STOCK] == "it cannot be built: ValueError: no such instruction"
    assert report.winner != STOCK and reasons[report.winner] == ""


def test_stock_tvm_wins_where_none_of_our_plans_can_be_built(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("searched", "chosen"):
        monkeypatch.setattr(ProgramBuilder, name, _refuse)
    monkeypatch.setattr(making, "entrants_of", lambda *_: {})  # another runtime may be as fast
    program = uc.compile(_module(), database=database, refine=QUICK)
    report = program.plan["main"].comparison
    assert report.winner == STOCK
    assert "no such instruction" in report.programs[0].reason
    x = np.zeros(graphs.SHAPE, np.float32)
    result = program(x).numpy()
    assert result.shape == graphs.SHAPE
    program.save(tmp_path / "stock.so")
    np.testing.assert_array_equal(uc.load(tmp_path / "stock.so")(x).numpy(), result)
    assert built_by_tvm in cast(Any, program)._relink.args, "what won is what is saved"


def test_when_no_program_runs_all_reasons_are_told(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("searched", "chosen", "stock", "whole"):
        monkeypatch.setattr(ProgramBuilder, name, _refuse)
    with pytest.raises(
        CollageError, match=r"no program runs: collage: it cannot be built: .*stock tvm: it cannot"
    ):
        uc.compile(_module(), database=database, refine=QUICK)


def _refuse(*_: object) -> None:
    raise ValueError("line one\nno such instruction")


def test_on_a_spent_budget_nothing_is_learned_but_the_programs_are_timed(
    tmp_path: Path, fastest_machine: None
) -> None:
    told: list[str] = []
    program = uc.compile(
        _module(), database=tmp_path / "c.sqlite", refine=QUICK, budget_seconds=1e-9, tell=told.append
    )
    report = program.plan["main"].comparison
    assert report.iterations == () and not any("timing the kernels" in what for what in told)
    assert "timing whole programs in turns" in told
    assert report.winner in {entry.name for entry in report.programs if entry.seconds is not None}
