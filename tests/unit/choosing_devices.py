"""Costs of kernels and copies on several processors, for tests of the choice of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import DEVICE_PLANS
from unity_collage.cost.model import Workload
from unity_collage.graph.calls import op_name
from unity_collage.passes import ChooseDevices, PlanDevices
from unity_collage.plan.costs import Cost
from unity_collage.plan.device_plan import DevicePlan, why_no_device_plan
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOY = fake_backend("toy", "relax.nn.relu", "relax.exp", "relax.tanh", "relax.add", "relax.multiply")
DEVICES = ("llvm:0", "haswell:1", "skylake:2")
"""Processor and number of each device."""


@dataclass(frozen=True)
class CostOfSeveral(FixedCost):
    """Kernels of ``toy`` have costs by operator and device, else 4 s; no other backend has a cost."""

    table: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def known(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return self.costs(workloads)

    def _cost(self, workload: Workload) -> Cost:
        if workload.backend != "toy":
            return Cost(None, reason="left out")
        device = next((name for name in DEVICES[1:] if name.split(":")[0] in workload.target), DEVICES[0])
        seconds = float(self.table.get(workload.label, {}).get(device, 4.0))
        return Cost(seconds, seconds, seconds, 1, "formula")


def chosen(
    mod: IRModule, model: FixedCost, devices: Sequence[str] | None = None, is_planned: bool = False
) -> tuple[IRModule, tuple[DevicePlan, ...]]:
    """``mod`` planned and with devices by cost, and the plans of ``main``, whose certificates hold."""
    with only_backends(TOY), Target("llvm"):
        found = ChooseDevices(model, devices)(mod if is_planned else PlanDevices()(mod))
    plans = DEVICE_PLANS.read(found["main"]) if DEVICE_PLANS.on(found["main"]) else ()
    for plan in plans:
        assert why_no_device_plan(plan) is None
    return found, plans


def place(device: relax.VDevice) -> str:
    """A VDevice as in ``DEVICES``."""
    return f"{device.target.attrs.get('mcpu') or 'llvm'}:{int(device.vdevice_id)}"


def placed_ops(mod: IRModule) -> tuple[tuple[str, str], ...]:
    """The operators of the dataflow blocks of ``main`` in order, each with the place of its result."""
    return tuple(
        ((op_name(binding.value) or "").split(".")[-1], place(binding.var.ty.vdevice))
        for block in mod["main"].body.blocks
        if isinstance(block, relax.DataflowBlock)
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.var.ty, relax.TensorType)
    )
