"""Costs of one variant say what to expect of another, for which no time is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import COSTS, PLAN
from unity_collage.cost.model import Workload
from unity_collage.cost.siblings import expected_costs
from unity_collage.graph.shapes import nbytes_of
from unity_collage.passes import AnnotateCandidates, EstimateNeededCosts, SearchPartition
from unity_collage.plan.costs import EXPECTED, UNKNOWN, Cost
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

GOOD = fake_backend("good", "relax.nn.relu", "relax.exp", "relax.tanh")


@dataclass(frozen=True)
class ByBytes(FixedCost):
    """A bound of a nanosecond a byte, and a cost that is a multiple of it by backend; time for the first variant."""

    per_bound: Mapping[str, float] = field(default_factory=dict)
    most_bytes: int = 1 << 30

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        bounds = self.lower_bounds(workloads)
        found: dict[str, Cost] = {}
        for workload in workloads:
            late = nbytes_of(workload.func.params[0]) > self.most_bytes
            seconds = bounds[workload.key] * self.per_bound[workload.backend]
            found[workload.key] = Cost(None, origin=UNKNOWN, reason="late") if late else Cost(seconds)
        return found

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        return {workload.key: 1e-9 * nbytes_of(workload.func.params[0]) for workload in workloads}


def chain(rows: int, last: str = "tanh") -> relax.Function:
    x = relax.Var("x", relax.TensorType((rows, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.exp(builder.emit(relax.op.nn.relu(x))))
            y = builder.emit_output(getattr(relax.op, last)(a))
        builder.emit_func_output(y)
    func = builder.get()["main"]
    assert isinstance(func, relax.Function)
    return func.with_attr("global_symbol", f"rows_{rows}")


def searched(*functions: relax.Function, most_bytes: int) -> IRModule:
    model = ByBytes({}, per_bound={"good": 2.0, "tvm": 5.0}, most_bytes=most_bytes)
    mod = IRModule({str(func.attrs["global_symbol"]): func for func in functions})
    with only_backends(GOOD), Target("llvm"):
        costed = EstimateNeededCosts(model)(AnnotateCandidates()(mod))
        return SearchPartition()(costed)


def test_the_plan_of_a_variant_without_time_is_that_of_its_sibling() -> None:
    partitioned = searched(chain(1), chain(8), most_bytes=64)
    first, second = (PLAN.read(partitioned[name]) for name in ("rows_1", "rows_8"))
    assert [kernel.backend for kernel in first.kernels] == [kernel.backend for kernel in second.kernels]
    assert first.expected == 0 and second.expected == len(second.kernels) > 0
    assert "are expected from those of others" in " ".join(second.remarks)
    assert second.seconds == 8 * first.seconds, "as much more as the lower bound"


def test_what_was_measured_is_not_expected() -> None:
    partitioned = searched(chain(1), chain(8), most_bytes=1 << 20)
    assert [PLAN.read(func).expected for func in partitioned.functions.values() if PLAN.on(func)] == [0, 0]


def test_a_function_of_other_operators_is_no_sibling() -> None:
    partitioned = searched(chain(1), chain(8, "sigmoid"), most_bytes=64)
    assert PLAN.read(partitioned["rows_8"]).expected == 0


def test_expectations_are_no_lower_than_bounds_and_no_facts() -> None:
    model = ByBytes({}, per_bound={"good": 2.0, "tvm": 5.0})
    with only_backends(GOOD), Target("llvm"):
        mod = AnnotateCandidates()(IRModule({"rows_1": chain(1), "rows_8": chain(8)}))
        costed = EstimateNeededCosts(model)(mod)
        expected = expected_costs(mod["rows_8"], [costed["rows_1"]], model)
    costs = COSTS.read(costed["rows_8"]).by_key
    measured = {key: cost.seconds for key, cost in costs.items() if cost.seconds is not None}
    assert measured and all(expected[key] == seconds for key, seconds in measured.items())
    assert all(cost.origin != EXPECTED for cost in costs.values())
