"""A given plan against ours: found by the names of its bindings, refused with the place, measured kernel by kernel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import tvm
from rich.console import Console
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R

import unity_collage as uc
from unity_collage.annotations import PLAN
from unity_collage.compiler import explain
from unity_collage.cost.model import Capability, Overheads, Workload
from unity_collage.errors import CollageError
from unity_collage.inspection.given_plan import CostedKernel, PlanCosts, compare_plan
from unity_collage.pipeline import Pipeline
from unity_collage.plan.costs import Cost
from unity_collage.plan.encoding import encode
from unity_collage.plan.given import GivenKernel, given_plan
from unity_collage.report.given_plan import plan_costs_summary
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

WEIGHTS = np.ones((8, 8), "float32")


def network() -> IRModule:
    """Two equal layers, a softmax between them: matmul h, relu r, softmax s, matmul p, relu q."""
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            r = builder.emit(R.nn.relu(builder.emit(R.matmul(x, relax.const(WEIGHTS)), "h")), "r")
            p = builder.emit(R.matmul(builder.emit(R.nn.softmax(r), "s"), relax.const(WEIGHTS)), "p")
            q = builder.emit_output(R.nn.relu(p), "q")
        builder.emit_func_output(q)
    return builder.get()


LIBRARY = FixedCost({"onednn": 1e-6, "openblas": 9e-6, "tvm": 3e-6}, launch=5e-7)
TVM = FixedCost({"onednn": 4e-6, "openblas": 9e-6, "tvm": 1e-6}, launch=5e-7)
BACKENDS = ("onednn", "tvm")


def partitioned(model: FixedCost) -> IRModule:
    pipeline = Pipeline(backends=BACKENDS, model=model)
    with uc.host_target():
        passes = [*pipeline.until_costs(), pipeline.search()]
        return tvm.transform.Sequential(passes)(network())


def compared(plan: Any, model: Any = LIBRARY) -> PlanCosts:
    return compare_plan(network(), plan, Pipeline(backends=BACKENDS, model=model))["main"]


def tvm_alone(path: Path) -> Path:
    """The file of the plan in which TVM makes all kernels."""
    plan = PLAN.read(partitioned(TVM)["main"])
    assert {kernel.backend for kernel in plan.kernels} == {"tvm"}
    path.write_text(json.dumps({"main": encode(plan)}))
    return path


def test_a_saved_plan_costs_what_its_kernels_cost(tmp_path: Path) -> None:
    found = compared(tvm_alone(tmp_path / "mine.json"))
    assert found.ours == pytest.approx(2 * 1e-6 + 3e-6 + 3 * 5e-7)
    assert found.given == pytest.approx(9e-6 + 3 * 5e-7)
    assert found.loss == pytest.approx(4e-6) and not found.is_tie and not found.together
    assert [each.seconds for each in found.differences] == pytest.approx([2e-6, 2e-6])
    assert {k.bindings for each in found.differences for k in (*each.given, *each.ours)} == {
        ("h", "r"),
        ("p", "q"),
    }


def test_our_own_plan_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ours.json"
    path.write_text(json.dumps({"main": encode(PLAN.read(partitioned(LIBRARY)["main"]))}))
    found = compared(path)
    assert found.loss == 0.0 and found.differences == () and found.is_tie


def test_a_partitioned_module_is_a_plan_too(tmp_path: Path) -> None:
    mod = partitioned(TVM)
    path = tmp_path / "mine.py"
    path.write_text(mod.script(show_meta=True))
    from_file = compared(path)
    assert from_file == compared(mod) == compared(tvm_alone(tmp_path / "mine.json"))
    assert compared(partitioned(LIBRARY)).loss == 0.0, (
        "kernels of a library have their operators in an inner function"
    )


def test_one_function_for_equal_layers_is_a_kernel_for_each_call() -> None:
    mod = partitioned(TVM)
    called = [gvar.name_hint for gvar in mod.get_global_vars() if "matmul" in gvar.name_hint]
    assert len(called) == 1
    assert len([k for k in compared(mod).given_kernels if k.label == "matmul+relu"]) == 2


def kernels(*given: GivenKernel) -> dict[str, tuple[GivenKernel, ...]]:
    return {"main": given}


REST = (GivenKernel("tvm", ("s",)), GivenKernel("tvm", ("p", "q")))


def test_kernels_typed_by_hand_may_split_ours() -> None:
    found = compared(kernels(GivenKernel("onednn", ("h",)), GivenKernel("tvm", ("r",)), *REST))
    split = next(each for each in found.differences if len(each.given) == 2)
    assert [kernel.label for kernel in split.given] == ["matmul", "relu"] and len(split.ours) == 1
    assert found.loss == pytest.approx(3e-6 + 2e-6 + 5e-7), "with one launch more"


MISTAKES = [
    ((GivenKernel("onednn", ("h", "nope")),), "kernel 1: the model has no binding nope"),
    ((GivenKernel("mkl", ("h", "r")),), "kernel 1: no backend named mkl has candidates here"),
    ((GivenKernel("onednn", ("h", "s")),), "kernel 1: onednn makes no kernel of h, s"),
    ((GivenKernel("onednn", ("h", "r"), "gemm"),), r"onednn makes matmul\+relu of h, r, not gemm"),
    ((GivenKernel("onednn", ("h", "r")),), r"the plan, main: s \(softmax\) is in no kernel"),
    ((GivenKernel("tvm", ("h", "r")), GivenKernel("onednn", ("h", "r")), *REST), "two kernels write r"),
]


@pytest.mark.parametrize(("given", "reason"), MISTAKES)
def test_a_plan_that_does_not_fit_is_refused_with_the_place(
    given: tuple[GivenKernel, ...], reason: str
) -> None:
    with pytest.raises(CollageError, match=reason) as caught:
        compared(kernels(*given))
    assert str(caught.value).startswith("the plan, main") and len(str(caught.value).splitlines()) == 1


def test_a_kernel_may_be_several_that_its_backend_runs_in_one_call() -> None:
    merging = replace(fake_backend("toy", "relax.matmul", "relax.nn.relu", "relax.nn.softmax"), merges=True)
    with only_backends(merging):
        pipeline = Pipeline(backends=("toy", "tvm"), model=FixedCost({"toy": 1e-6, "tvm": 9e-6}))
        given = kernels(GivenKernel("toy", ("h", "r", "s", "p")), GivenKernel("toy", ("q",)))
        found = compare_plan(network(), given, pipeline)["main"]
    assert [kernel.label for kernel in found.given_kernels] == ["matmul+relu+softmax+matmul", "relu"]
    assert found.given == pytest.approx(2e-6)


class Silent(FixedCost):
    """Costs that nobody may ask for."""

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        raise AssertionError("measured")


def test_backends_that_exclude_each_other_are_refused_before_anything_is_measured() -> None:
    one, two = (fake_backend(name, "relax.matmul", "relax.nn.relu") for name in ("one", "two"))
    given = kernels(GivenKernel("one", ("h",)), GivenKernel("two", ("r",)), *REST)
    with only_backends(replace(one, excludes=frozenset({"two"})), two):
        pipeline = Pipeline(backends=("one", "two", "tvm"), model=Silent())
        with pytest.raises(CollageError, match="the plan, main: one and two exclude each other"):
            compare_plan(network(), given, pipeline)


def test_nothing_is_measured_for_a_plan_that_does_not_fit() -> None:
    with pytest.raises(CollageError, match="no binding nope"):
        compared(kernels(GivenKernel("onednn", ("nope",))), Silent())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([], "mine.json is not a plan"),
        ({"main": 3}, "mine.json, main: there is no list of kernels"),
        ({"main": {"kernels": [{}]}}, "mine.json, main, kernel 1: it names no backend"),
        (
            {"main": {"kernels": [{"backend": "tvm", "bindings": "h"}]}},
            "kernel 1: its bindings are not a list",
        ),
        (
            {"main": {"kernels": [{"backend": "tvm", "bindings": ["h"], "threads": 0}]}},
            "its threads are not a positive number",
        ),
    ],
)
def test_data_that_is_no_plan_is_refused(data: Any, reason: str) -> None:
    with pytest.raises(CollageError, match=reason):
        given_plan(data, "mine.json")


def test_files_that_are_no_plan_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("{")
    (tmp_path / "mine.py").write_text("x = 1")
    (tmp_path / "bare.py").write_text(partitioned(LIBRARY).script())
    (tmp_path / "other.py").write_text(
        IRModule({"other": graphs.chain().with_attr("global_symbol", "other")}).script()
    )
    for name, reason in [
        ("mine.json", "is not a plan in JSON"),
        ("mine.py", "is not TVMScript of a module"),
        ("bare.py", r"write it with mod.script\(show_meta=True\)"),
        ("other.py", "it has no function main"),
        ("none.json", "is not a file"),
    ]:
        with pytest.raises(CollageError, match=reason):
            compared(tmp_path / name)


def test_a_kernel_with_another_operator_than_the_model_is_refused() -> None:
    script = partitioned(TVM).script(show_meta=True).replace("R.nn.relu", "R.exp")
    with pytest.raises(CollageError, match=r"r is relax\.exp there, and relax\.nn\.relu in the model"):
        compared(tvm.script.from_source(script))


@dataclass(frozen=True)
class InTurns(FixedCost):
    """Times all kernels together: there oneDNN is slow."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.CONFIRM})

    def confirmed(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {w.key: Cost(s := 5e-6 if w.backend == "onednn" else 1e-6, s, s, 9) for w in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return Overheads()


def test_both_plans_are_timed_together_where_that_is_possible(tmp_path: Path) -> None:
    given = kernels(GivenKernel("onednn", ("h", "r")), *REST)
    found = compared(given, InTurns({"onednn": 4e-6, "openblas": 9e-6, "tvm": 1e-6}))
    assert found.together
    (difference,) = found.differences
    assert difference.given[0].seconds == pytest.approx(5 * difference.ours[0].seconds)


def test_the_summary_shows_the_loss_and_says_what_is_noise() -> None:
    ours = CostedKernel("onednn", "matmul", ("h",), 10e-6, 9e-6, 11e-6)
    near, far = (CostedKernel("tvm", "matmul", ("h",), s, s - 1e-6, s + 1e-6) for s in (11.5e-6, 30e-6))

    def shown(given: CostedKernel) -> str:
        from unity_collage.inspection.given_plan import KernelDifference

        difference = KernelDifference((ours,), (given,))
        found = PlanCosts(10e-6, given.seconds, (ours,), (given,), (difference,), True)
        console = Console(width=80)
        with console.capture() as captured:
            console.print(plan_costs_summary("main", found))
        return " ".join(captured.get().split())

    assert "costs 30.0 us, ours 10.0 us: +20.0 us (+200.0%)" in shown(far) and "a tie" not in shown(far)
    assert "+1.50 us (+15.0%), a tie as far as the measurements tell" in shown(near)


@dataclass(frozen=True)
class NotStored(FixedCost):
    """Costs of a database that cannot be written."""

    def database_and_lock(self) -> tuple[Any, bool]:
        return SimpleNamespace(path=None, read_only=False, not_kept=2, why_not_kept="the disk is full"), False


def test_costs_that_could_not_be_stored_are_told() -> None:
    given, pipeline = partitioned(LIBRARY), Pipeline(backends=BACKENDS, model=NotStored())
    for ask in (
        lambda: compare_plan(network(), given, pipeline),
        lambda: explain(network(), pipeline),
    ):
        with pytest.warns(UserWarning, match="2 measured facts are lost with this process: the disk is full"):
            ask()
