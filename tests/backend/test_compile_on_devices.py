"""``compile(devices=...)``: values without a place are where they cost least, and the numbers are right."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage.annotations import DEVICE_PLANS
from unity_collage.cost.model import Workload
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import CollageError, MissingCost
from unity_collage.graph.calls import op_name
from unity_collage.measure.copies import SIZES, measured_copies, pairs_of
from unity_collage.measure.measured import MeasuredCost
from unity_collage.plan.costs import Cost, Point
from unity_collage.plan.device_plan import why_no_device_plan
from unity_collage.testing.fixed_cost import FixedCost

OTHER = "llvm -mcpu=x86-64-v3"
WEIGHTS = np.random.default_rng(0).standard_normal((16, 16), "float32") / 4
X = np.random.default_rng(1).standard_normal((4, 16), "float32")


@dataclass(frozen=True)
class PlantedCost(FixedCost):
    """Kernels with a product cost 1 s on the other processor and 9 s here, and all others the reverse."""

    def _cost(self, workload: Workload) -> Cost:
        seconds = 1.0 if ("x86-64-v3" in workload.target) == ("matmul" in workload.label) else 9.0
        return Cost(seconds, seconds, seconds, 1, "formula")


def model() -> IRModule:
    """``tanh(sum((x, relu(x @ w)))) + relu(x @ w)``, with a tuple, a view and two results; no value has a place."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(WEIGHTS)))
            pair = builder.emit(relax.Tuple([x, product]))
            flat = builder.emit(relax.op.reshape(builder.emit(relax.TupleGetItem(pair, 1)), (8, 8)))
            total = builder.emit(relax.op.sum(flat))
            back = builder.emit(relax.op.tanh(builder.emit(relax.op.add(x, total))))
            results = [builder.emit_output(back), builder.emit_output(product)]
        builder.emit_func_output(relax.Tuple(results))
    return builder.get()


def check(program: uc.Program) -> None:
    product = X @ WEIGHTS
    for found, right in zip(program(X), (np.tanh(X + product.sum()), product), strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-4, atol=1e-5)


def copies(program: uc.Program) -> int:
    assert program.mod is not None
    bindings = (binding for block in program.mod["main"].body.blocks for binding in block.bindings)
    return sum(op_name(binding.value) == "relax.to_vdevice" for binding in bindings)


@pytest.mark.parametrize(("copy", "crossing"), [(0.5, 2), (5.0, 0)])
def test_the_program_has_copies_where_they_pay(copy: float, crossing: int, tmp_path: Path) -> None:
    """The product is on the other processor only if a copy there and one back cost less than what it gains."""
    devices = [uc.host_target(), OTHER]
    program = uc.compile(model(), devices=devices, estimator=PlantedCost(copy=copy), backends=["tvm"])
    assert program.mod is not None and program.plan is not None
    assert copies(program) == crossing
    (plan,) = DEVICE_PLANS.read(program.mod["main"])
    assert plan.proved and why_no_device_plan(plan) is None and len(plan.copies) == crossing
    assert plan.said() in program.plan["main"].remarks
    at = [
        "llvm:1" if crossing and kernel.label == "matmul" else "llvm:0"
        for kernel in program.plan["main"].kernels
    ]
    assert [kernel.device for kernel in program.plan["main"].kernels] == at
    assert program.memory is not None and {space.device for space in program.memory.spaces} == set(at)
    check(program)
    program.save(tmp_path / "program.so")
    check(uc.load(tmp_path / "program.so"))


@dataclass(frozen=True)
class MeasuredCopies(PlantedCost):
    """Kernels of 0.1 and 0.9 ms, and copies as they are measured."""

    def _cost(self, workload: Workload) -> Cost:
        planted = super()._cost(workload)
        assert planted.seconds is not None
        seconds = planted.seconds * 1e-4
        return Cost(seconds, seconds, seconds, 1, "formula")

    def copies(self, places: Sequence[str], *, shared: bool = False) -> Mapping[str, Sequence[Point]]:
        return {">".join(pair): tuple(measured_copies(*pair, shared)) for pair in pairs_of(places)}


@pytest.mark.parametrize(("milliseconds", "crossing"), [(0, 2), (1, 0)])
def test_copies_that_are_measured_as_slow_do_not_pay(
    milliseconds: int, crossing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy sleeps for a time, longer for each MB."""

    def slow_copy(value: tvm.runtime.Tensor, index: int) -> tvm.runtime.Tensor:
        time.sleep(milliseconds * 1e-3 * (1 + value.numpy().nbytes // 2**20))
        return value.copyto(tvm.cpu(index))

    tvm.register_global_func("test.slow_copy", slow_copy, override=True)
    monkeypatch.setattr("unity_collage.measure.copies.TO_CPU", "test.slow_copy")
    program = uc.compile(
        model(), devices=[uc.host_target(), OTHER], estimator=MeasuredCopies(), backends=["tvm"]
    )
    assert copies(program) == crossing
    check(program)


@pytest.mark.usefixtures("fastest_machine")
def test_two_numbers_of_one_processor_are_chosen_by_measured_costs(tmp_path: Path) -> None:
    """The copy that a hint asks for may be of either value that is free; more than one never pays."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = builder.emit(relax.op.concat([x] * 64, 1))
            there = builder.emit(relax.op.hint_on_device(wide, tvm.cpu(1)))
            out = builder.emit_output(relax.op.exp(there))
        builder.emit_func_output(out)
    program = uc.compile(
        builder.get(), devices=["cpu:0", "cpu:1"], database=tmp_path / "costs.db", backends=["tvm"]
    )
    assert program.devices == ("cpu:0", "cpu:1") and copies(program) == 1
    np.testing.assert_allclose(program(X).numpy(), np.exp(np.concatenate([X] * 64, 1)), rtol=1e-4)
    with MeasuredCost(CostDatabase(tmp_path / "costs.db"), locked=True) as known:
        points = known.copies(["cpu:0", "cpu:1"], shared=True)
        assert [nbytes for nbytes, _ in points["cpu:0>cpu:1"]] == list(SIZES)
        assert all(seconds > 0 for _, seconds in points["cpu:1>cpu:0"])
        with pytest.raises(MissingCost, match="shared copy cpu:0>cpu:2 costs is not in the database"):
            known.copies(["cpu:0", "cpu:2"], shared=True)


def free_sizes() -> IRModule:
    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.exp(x))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize(
    ("devices", "options", "reason"),
    [
        (["cpu:0"], {}, "fewer than two devices"),
        (["cpu:0", "cpu:0"], {}, "fewer than two devices"),
        (["cpu:0", "cuda:0"], {}, "cuda:0 is not a device of the target llvm"),
        (["cpu:0", "llvm:3"], {}, "the module has no device 'llvm:3'"),
        (
            ["cpu:0", "gpu:7"],
            {},
            "no device 'gpu:7': there are cpu:0, cpu:1 and so on, and cuda:0 with an NVIDIA GPU",
        ),
        (["cpu:0", "llvm -mcpu=sapphirerapids"], {}, "sapphirerapids cannot be measured here"),
        (["cpu:0", "cpu:1"], {"measure": False}, "the choice of devices needs costs"),
        (["cpu:0", "cpu:1"], {"refine": uc.Refinement(), "estimator": PlantedCost()}, "cannot be compared"),
    ],
)
def test_what_cannot_be_chosen_is_refused_in_one_line(
    devices: list[str], options: dict[str, object], reason: str
) -> None:
    with pytest.raises(CollageError, match=reason) as refused:
        uc.compile(model(), devices=devices, **options)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_free_sizes_are_refused() -> None:
    with pytest.raises(CollageError, match="devices are chosen by cost for fixed sizes"):
        uc.compile(free_sizes(), devices=["cpu:0", "cpu:1"], estimator=PlantedCost())


def test_a_model_without_a_place_has_its_inputs_on_the_first_device() -> None:
    program = uc.compile(
        model(), devices=["cpu:1", "cpu:0"], estimator=PlantedCost(copy=1.0), backends=["tvm"]
    )
    assert program.devices[0] == "cpu:1" and str(program(X)[0].device) == "cpu:1"
    check(program)
