"""What the ancestors got wrong about costs (numbers 8 to 12 of their known defects), each as a test of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kernels_only import KernelsOnly
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage import runtime
from unity_collage.annotations import COSTS, PLAN
from unity_collage.backends import registry
from unity_collage.backends.base import Backend
from unity_collage.cost import fingerprint
from unity_collage.cost.asking import workloads
from unity_collage.cost.method import Method
from unity_collage.database.costs import CostDatabase, FailureKind
from unity_collage.database.rows import with_target, without_target
from unity_collage.machine.fingerprint import fields_of
from unity_collage.measure.inputs import edge_inputs, random_inputs
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.plan.costs import Cost
from unity_collage.testing import fake_backend, graphs
from unity_collage.testing.fixed_cost import FixedCost

QUICK = Method(min_runs=3, max_runs=3, max_warmup_seconds=0.0)


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """Backends whose kernels raise, and give wrong numbers."""
    with fake_backend.installed(tmp_path / "site", "raises", "wrong_numbers"):
        yield


@pytest.fixture
def database(tmp_path: Path) -> Iterator[CostDatabase]:
    with CostDatabase(tmp_path / "costs.sqlite") as opened:
        yield opened


def costed(func: relax.Function, model: object, *backends: str) -> IRModule:
    with uc.host_target():
        return EstimateCosts(model)(AnnotateCandidates((*backends, "tvm"))(IRModule({"main": func})))


def chosen_backends(mod: IRModule) -> set[str]:
    with uc.host_target():
        plan = PLAN.read(SearchPartition()(mod)["main"])
    return {kernel.backend for kernel in plan.kernels}


def test_defect_8_a_candidate_that_fails_at_run_time_is_not_chosen_and_ends_nothing(
    installed: None, database: CostDatabase
) -> None:
    with KernelsOnly(database, method=QUICK) as model:
        mod = costed(graphs.chain(), model, "fake_raises")
    reasons = [cost.reason for cost in COSTS.read(mod["main"]).by_key.values() if cost.seconds is None]
    assert len(reasons) == 1 and "this kernel raises" in reasons[0]
    assert chosen_backends(mod) == {"tvm"}


def test_defect_8_a_plan_without_any_cost_is_not_an_optimum() -> None:
    mod = costed(graphs.chain(), FixedCost({"tvm": "nothing runs here"}))
    with uc.host_target():
        plan = PLAN.read(SearchPartition()(mod)["main"])
    assert not plan.kernels


def keys(dtype: str) -> set[str]:
    x = relax.Var("x", relax.TensorType((4, 16), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(R.nn.relu(x))
        builder.emit_func_output(result)
    with uc.host_target():
        mod = AnnotateCandidates(("tvm",))(builder.get())
    return {workload.key for workload in workloads(mod["main"], FixedCost()).values()}


def test_defect_9_a_key_knows_the_dtype() -> None:
    assert not keys("float32") & keys("float16")


def test_defect_9_a_cost_knows_machine_library_threads_and_method(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(method: Method = QUICK) -> str:
        return fingerprint.cost_fingerprint("tvm", uc.host_target(), method)

    here, threads = told(), runtime.num_threads()
    assert told() == here != told(Method())
    runtime.set_num_threads(threads + 1)
    try:
        assert told() != here
    finally:
        runtime.set_num_threads(threads)
    assert fields_of(here)["machine"]
    monkeypatch.setattr(fingerprint, "get", lambda name: _renamed(registry.get(name)))
    assert told() != here


def _renamed(backend: Backend) -> Backend:
    return Backend(backend.name, backend.rule, lambda: None, lambda: "another version", backend.codegen)


def test_defect_9_a_failure_is_kept_for_its_version_only_and_a_timeout_not_at_all(
    installed: None, database: CostDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KernelsOnly(database, method=QUICK) as model:
        costed(graphs.chain(), model, "fake_raises")
    (entry,) = database.quarantine_entries()
    assert entry.kind is FailureKind.RUN_ERROR
    assert without_target(entry.version) == fingerprint.backend_version("fake_raises")
    assert entry.key in database.quarantined([entry.key], entry.version)
    assert not database.quarantined([entry.key], with_target(without_target(entry.version), "another target"))
    monkeypatch.setattr(fingerprint, "get", lambda name: _renamed(registry.get(name)))
    with KernelsOnly(database, method=QUICK) as model:
        costed(graphs.chain(), model, "fake_raises")
    assert len(database.quarantine_entries()) == 2


def test_defect_10_noise_that_does_not_settle_is_told_as_a_wide_interval() -> None:
    samples = [1e-6, 3e-6] * 25
    low, _, high = runtime.interval(samples)
    assert (low, high) == (1e-6, 3e-6)
    outlier = [1e-6] * 25 + [1.0]
    assert runtime.interval(outlier).estimate == runtime.interval(outlier).high == 1e-6


def test_defect_10_a_module_without_a_name_is_measured(database: CostDatabase) -> None:
    with KernelsOnly(database, method=QUICK) as model:
        costs = COSTS.read(costed(graphs.diamond(), model)["main"]).by_key.values()
    assert all(isinstance(cost, Cost) and cost.low <= cost.seconds <= cost.high for cost in costs)


def test_defect_11_indexes_read_many_rows() -> None:
    table = relax.Var("x", relax.TensorType((5, 8), "float32"))
    index = relax.Var("i", relax.TensorType((64,), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [table, index]):
        with builder.dataflow():
            value = builder.emit_output(R.take(table, index, axis=0))
        builder.emit_func_output(value)
    func = builder.get()["main"]
    assert sorted(np.unique(random_inputs(func)[1])) == [0, 1, 2, 3, 4]
    assert sorted(np.unique(edge_inputs(func)[1])) == [0, 4]


def test_defect_12_a_fast_wrong_kernel_does_not_win(installed: None, database: CostDatabase) -> None:
    with KernelsOnly(database, method=QUICK) as model:
        mod = costed(graphs.chain(), model, "fake_wrong_numbers")
    costs = COSTS.read(mod["main"]).by_key
    (reason,) = [cost.reason for key, cost in costs.items() if key.startswith("fake_wrong_numbers:")]
    assert reason.startswith("wrong numbers: output 0 is off by")
    assert chosen_backends(mod) == {"tvm"}
