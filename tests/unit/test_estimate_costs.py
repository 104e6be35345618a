"""EstimateCosts: one question for each distinct kernel, and its answer beside the candidates."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, Cost
from unity_collage.cost import workload
from unity_collage.cost.caches import Caches
from unity_collage.cost.database import CostDatabase
from unity_collage.errors import MissingAnnotation
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.passes.estimate_costs import workloads
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOY = fake_backend("toy", "relax.nn.relu")


def annotated(func: relax.Function) -> IRModule:
    with only_backends(TOY), Target("llvm"):
        return AnnotateCandidates()(IRModule({"main": func}))


def test_prices_and_reasons_are_attributes() -> None:
    model = FixedCost({"toy": "the toy is broken", "tvm:relu": 2e-6}, default=1e-6, launch=5e-7)
    costs = COSTS.read(EstimateCosts(model)(annotated(graphs.chain()))["main"])
    by_label = {key: costs.prices[key] for key in costs.prices}
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


@pytest.mark.parametrize(("rows", "place"), [(16, "L2"), (1 << 11, "L3"), (1 << 13, "memory")])
def test_weights_are_where_the_function_leaves_them(
    rows: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "reported", lambda: Caches(1 << 14, 1 << 18))
    weights = relax.const(np.zeros((rows, 16), "float32"))
    x = relax.Var("x", relax.TensorType((rows, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_output(R.add(x, weights))
        builder.emit_func_output(value)
    func = AnnotateCandidates(("tvm",))
    with only_backends(TOY), Target("llvm"):
        asked = workloads(func(IRModule({"main": builder.get()["main"]}))["main"], FixedCost())
    assert [question.weights_in for question in asked.values()] == [place]


def test_a_missing_annotation_names_the_pass_to_run() -> None:
    bare = annotated(graphs.chain())
    with pytest.raises(MissingAnnotation, match="run EstimateCosts first"):
        SearchPartition()(bare)


def test_a_module_without_candidates_passes_through() -> None:
    mod = IRModule({"main": graphs.chain()})
    tvm.ir.assert_structural_equal(EstimateCosts(FixedCost())(mod), mod)


def test_the_database_keeps_prices_and_reasons_by_fingerprint(tmp_path) -> None:
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
