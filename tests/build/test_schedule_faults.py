"""An exception in our own code costs a kernel its schedule, is logged, and is told apart from a refusal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from schedule_checks import TARGET, floats, module, run
from tvm import relax, tirx
from tvm.relax import op

import unity_collage.schedule as schedule_module
from unity_collage.cost.method import Method
from unity_collage.graph import DataflowGraph, SubGraph, extract
from unity_collage.lowering import pack_weights
from unity_collage.measure.client import Worker, WorkerClient
from unity_collage.plan.costs import Cost
from unity_collage.processes.child import Child
from unity_collage.schedule import schedule, scheduled_module
from unity_collage.schedule.faults import FAULT
from unity_collage.testing import graphs
from unity_collage.testing.faults import Faults


def planted(*_args: object) -> None:
    raise KeyError("planted")


def exp_of(*shape: int) -> tvm.IRModule:
    return module(op.exp, [shape], ["float32"])


def kernel_of(mod: tvm.IRModule) -> tirx.PrimFunc:
    (kernel,) = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    return kernel


@pytest.mark.parametrize("place", ["emit", "inlined_stages", "fast_math.rewritten"])
def test_a_fault_leaves_the_loops_and_is_marked(
    monkeypatch: pytest.MonkeyPatch, faults: Faults, place: str
) -> None:
    before = exp_of(64, 64)
    monkeypatch.setattr(f"unity_collage.schedule.{place}", planted)
    kernel = kernel_of(scheduled_module(before, TARGET))
    assert kernel.attrs["collage.unscheduled"] == "a fault: KeyError: 'planted'"
    assert kernel.attrs["collage.unscheduled"].startswith(FAULT)
    tvm.ir.assert_structural_equal(kernel.body, kernel_of(before).body)
    (said,) = faults.take()
    assert said.startswith("tir_exp keeps its loops: a fault: KeyError: 'planted'\nTraceback")
    assert "in planted" in said


def test_a_kernel_with_a_fault_computes_what_it_did(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    monkeypatch.setattr(schedule_module, "emit", planted)
    x = floats(9, 50)
    np.testing.assert_allclose(run(exp_of(9, 50), x)[0], np.exp(x), rtol=1e-5)
    assert len(faults.take()) == 1


def test_one_fault_leaves_the_other_kernels(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    emit = schedule_module.emit

    def sometimes(stages, machine):
        return planted() if stages[0].init is not None else emit(stages, machine)

    monkeypatch.setattr(schedule_module, "emit", sometimes)
    mod = module(lambda x: op.matmul(op.exp(x), x), [(64, 64)], ["float32"])
    reasons = {
        gvar.name_hint: func.attrs.get("collage.unscheduled", "")
        for gvar, func in scheduled_module(mod, TARGET).functions_items()
        if isinstance(func, tirx.PrimFunc)
    }
    assert reasons == {"tir_exp": "", "matmul": "a fault: KeyError: 'planted'"}
    assert len(faults.take()) == 1


def test_the_traceback_is_in_the_log_at_level_debug(
    monkeypatch: pytest.MonkeyPatch, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schedule_module, "emit", planted)
    kernel = kernel_of(exp_of(64, 64))
    for level in (logging.WARNING, logging.DEBUG):
        with caplog.at_level(level, "unity_collage.schedule"):
            schedule(kernel, TARGET)
    short, long = [record for record in caplog.records if record.name == "unity_collage.schedule"]
    assert (short.levelname, short.exc_info) == ("ERROR", None)
    assert long.exc_info is not None
    assert short.getMessage() == long.getMessage()
    assert len(faults.take()) == 2


def test_a_refusal_is_not_a_fault(faults: Faults) -> None:
    kernel = schedule(kernel_of(exp_of(0, 4)), TARGET)
    reason = kernel.attrs["collage.unscheduled"]
    assert reason.endswith("has an axis without elements")
    assert not reason.startswith(FAULT)
    assert faults.take() == []


def test_a_fault_of_packing_leaves_the_weights(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 200), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.matmul(x, relax.const(floats(200, 640))))
        builder.emit_func_output(out)
    with TARGET:
        mod = relax.transform.LegalizeOps()(builder.finalize())
    assert not equal(pack_weights.packed(mod, TARGET), mod)
    monkeypatch.setattr(pack_weights.weights, "choose", planted)
    assert equal(pack_weights.packed(mod, TARGET), mod)
    (said,) = faults.take()
    assert said.startswith("matmul keeps its weights as they are: a fault: KeyError: 'planted'")


def equal(one: tvm.IRModule, other: tvm.IRModule) -> bool:
    return tvm_ffi.structural_equal(one, other)


WORKER = """
import runpy
import unity_collage.schedule as schedule
def emit(*_):
    raise KeyError("planted")
schedule.emit = emit
runpy.run_module("unity_collage.measure.worker", run_name="__main__")
"""


@pytest.fixture
def module_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The name of a module with this text, which child processes can import."""

    def written(text: str) -> str:
        (tmp_path / "planted_module.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
        return "planted_module"

    return written


def test_a_fault_in_the_measuring_process_is_logged_here(
    faults: Faults, module_of: Callable[[str], str]
) -> None:
    quick = Method(min_runs=3, max_runs=3, max_seconds=0.02, max_warmup_seconds=0.0)
    function = extract(SubGraph(DataflowGraph(graphs.chain()), 1), lift_constants=True)
    kernel = {"backend": "tvm", "digest": "relu", "function": tvm.ir.save_json(function)}
    question = {"ask": "cost", "target": str(TARGET), "evict_bytes": 0}
    with WorkerClient(1, quick, 300.0, worker=Worker(module_of(WORKER))) as client:
        answer = client.compare(question, {"relu": kernel})["relu"]
    assert isinstance(answer, Cost), answer
    (said,) = faults.take()
    assert said.endswith("kernel keeps its loops: a fault: KeyError: 'planted'")


CHILD = """
from unity_collage.processes.serving import serve
from unity_collage.schedule import faults
def answer(request):
    try:
        return {"seconds": 1 / request["number"]}
    except ZeroDivisionError as error:
        return {"reason": faults.logged("it", error)}
serve(lambda hello: answer)
"""


def test_a_fault_in_a_child_is_logged_here_and_its_answer_comes(
    faults: Faults, module_of: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "unity_collage.schedule")
    with Child(module_of(CHILD), {}, 60.0) as child:
        assert child.ask({"number": 0}) == {"reason": "a fault: ZeroDivisionError: division by zero"}
        assert child.ask({"number": 2}) == {"seconds": 0.5}
    assert faults.take() == ["it: a fault: ZeroDivisionError: division by zero"]
    first, second = [record for record in caplog.records if record.name == "unity_collage.schedule"]
    assert first.levelname == "ERROR"
    assert "line 6, in answer" in second.getMessage()
