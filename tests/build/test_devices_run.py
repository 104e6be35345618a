"""Planned and partitioned programs of two VDevices run with the right numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.passes import MergeCopies, PartitionByDevice, PlanDevices


@I.ir_module
class Split:
    """There and back, with a branch at the end."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool")):
        with R.dataflow():
            a = R.exp(x)
            h = R.hint_on_device(a, tvm.cpu(1))
            v = R.hint_on_device(w, tvm.cpu(1))
            b = R.nn.relu(R.matmul(h, v))
            d = R.to_vdevice(b, "llvm:0")
            R.output(d)
        if c:
            z = R.add(d, d)
        else:
            z = R.multiply(d, d)
        return z


@pytest.mark.parametrize("passes", [[], [MergeCopies()], [MergeCopies(), PartitionByDevice()]], ids=len)
def test_two_devices_of_one_machine(passes: list[tvm.transform.Pass]) -> None:
    mod = tvm.transform.Sequential([PlanDevices(), *passes])(Split)
    machine = relax.VirtualMachine(relax.build(mod, target="llvm"), [tvm.cpu(0), tvm.cpu(1)])
    rng = np.random.default_rng(0)
    x, w = (rng.random((4, 4), "float32") for _ in range(2))
    expected = np.maximum(np.exp(x) @ w, 0)
    for condition, right in ((True, expected + expected), (False, expected * expected)):
        made = machine["main"](*(tvm.runtime.tensor(np.array(each)) for each in (x, w, condition)))
        np.testing.assert_allclose(made.numpy(), right, rtol=1e-5)
