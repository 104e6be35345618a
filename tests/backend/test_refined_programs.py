"""Whole programs against each other, in the worker that really runs them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.build import build, link, lower
from unity_collage.errors import CollageError
from unity_collage.refine import Refinement
from unity_collage.refine.contest import Contest
from unity_collage.refine.loop import STOCK
from unity_collage.refine.ticks import InsertTicks, ticked_kernels
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
    report = program.plan["main"]["refinement"]
    names = [entry["name"] for entry in report["programs"]]
    assert {"collage", STOCK} <= set(names)
    assert all(entry.get("seconds", 0) > 0 or entry["reason"] for entry in report["programs"])
    assert report["winner"] in names
    assert json.loads(json.dumps(report)) == report
    assert "racing" in told


def test_a_module_of_unknown_shapes_cannot_be_timed_as_a_whole(tmp_path) -> None:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            R.output(a)
        return a

    with pytest.raises(CollageError, match="cannot be timed as a whole: x has no static shape"):
        uc.compile(IRModule({"main": main}), database=tmp_path / "costs.sqlite", refine=QUICK)


def test_there_is_a_tick_behind_each_kernel() -> None:
    target = uc.host_target()
    x = np.zeros(graphs.SHAPE, np.float32)
    lowered = lower(_module(), target)
    kernels = ticked_kernels(lowered["main"])
    assert len(kernels) >= 1
    with Contest([x], threads=1) as contest:
        assert contest.enter("ticking", link(InsertTicks()(lowered), target)) is None
        seconds = contest.ticks("ticking", len(kernels), rounds=5)
    assert len(seconds) == len(kernels) and all(value > 0 for value in seconds)


def test_a_program_that_crashes_is_out_and_the_others_go_on() -> None:
    target = uc.host_target()
    x = np.zeros(graphs.SHAPE, np.float32)
    with Contest([x], threads=1) as contest:
        assert contest.enter("good", build(_module(), target)) is None
        reason = contest.enter("crash", build(_crashing(), target))
        assert reason is not None and "SIGABRT" in reason
        medians = contest.race(["good"], rounds=2, round_seconds=0.001)
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
