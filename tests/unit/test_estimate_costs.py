"""EstimateCosts: one question for each distinct kernel, and its answer as an attribute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS
from unity_collage.cost import model as workload
from unity_collage.cost.asking import working_set, workloads
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import MissingAnnotation
from unity_collage.machine.caches import Caches
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.plan.costs import Cost
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOY = fake_backend("toy", "relax.nn.relu")


def annotated(func: relax.Function) -> IRModule:
    with only_backends(TOY), Target("llvm"):
        return AnnotateCandidates()(IRModule({"main": func}))


def test_costs_and_reasons_are_attributes() -> None:
    model = FixedCost({"toy": "the toy is broken", "tvm:relu": 2e-6}, default=1e-6, launch=5e-7)
    costs = COSTS.read(EstimateCosts(model)(annotated(graphs.chain()))["main"])
    by_label = {key: costs.by_key[key] for key in costs.by_key}
    assert costs.launch_seconds == 5e-7
    assert [c.reason for c in by_label.values() if c.seconds is None] == ["the toy is broken"]
    assert 2e-6 in [c.seconds for c in by_label.values()]


def test_equal_layers_are_one_question() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(5):
                value = builder.emit(R.nn.relu(value))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    mod = annotated(builder.get()["main"])
    asked = workloads(mod["main"], FixedCost())
    assert len(CANDIDATES.read(mod["main"])) == len(asked) == 5 + 15
    assert len({question.key for question in asked.values()}) == 1 + 5


@pytest.mark.parametrize(
    ("rows", "mib"),
    [(1 << 10, 0), (12 << 10, 2), (20 << 10, 4), (30 << 10, 6), (128 << 10, 16)],
)
def test_weights_lie_behind_what_a_run_touches(rows: int, mib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, input and result, of 64 bytes a row each."""
    monkeypatch.setattr(workload, "reported", lambda: Caches(1 << 20, 4 << 20))
    weights = relax.const(np.zeros((rows, 16), "float32"))
    x = relax.Var("x", relax.TensorType((rows, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_output(R.add(x, weights))
        builder.emit_func_output(value)
    # Without the contract instrument: it prints all weights.
    with only_backends(TOY), Target("llvm"), tvm.transform.PassContext():
        asked = workloads(AnnotateCandidates(("tvm",))(builder.get())["main"], FixedCost())
    assert [question.evict_bytes for question in asked.values()] == [mib << 20]


def test_a_missing_annotation_names_the_pass_to_run() -> None:
    bare = annotated(graphs.chain())
    with pytest.raises(MissingAnnotation, match="run EstimateCosts first"):
        SearchPartition()(bare)


def test_a_module_without_candidates_passes_through() -> None:
    mod = IRModule({"main": graphs.chain()})
    tvm.ir.assert_structural_equal(EstimateCosts(FixedCost())(mod), mod)


def test_the_database_keeps_costs_and_reasons_by_fingerprint(tmp_path) -> None:
    first = CostDatabase(tmp_path / "costs.sqlite")
    first.put("toy:1", "here", "relu", Cost(1e-6, 0.9e-6, 1.1e-6, 12))
    first.put("toy:2", "here", "exp", Cost(None, reason="crashed"))
    first.close()
    again = CostDatabase(tmp_path / "costs.sqlite")
    assert again.get(["toy:1", "toy:2", "toy:3"], "here") == {
        "toy:1": Cost(1e-6, 0.9e-6, 1.1e-6, 12, "database"),
        "toy:2": Cost(None, origin="database", reason="crashed"),
    }
    assert again.get(["toy:1"], "elsewhere") == {}
    assert len(again) == 2


def test_what_is_alive_at_once_counts_with_all_constants() -> None:
    """Of four maps in a row two live at once; a map that is read at the end lives all along."""
    weights = relax.const(np.zeros(1000, "float32"))

    def touched(body: Callable[[relax.BlockBuilder, relax.Var], relax.Expr]) -> int:
        x = relax.Var("x", relax.TensorType((1000,), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                value = builder.emit_output(body(builder, x))
            builder.emit_func_output(value)
        return working_set(builder.get()["main"])

    def chain(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return R.exp(builder.emit(R.tanh(builder.emit(R.exp(x)))))

    assert touched(chain) == 2 * 4000
    assert touched(lambda builder, x: R.add(x, builder.emit(chain(builder, x)))) == 3 * 4000
    assert touched(lambda builder, x: R.add(builder.emit(R.add(x, weights)), weights)) == 3 * 4000
