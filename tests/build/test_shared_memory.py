"""CPU devices share the memory of the machine: values get a second name there, and nothing is copied."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import unity_collage as uc
from unity_collage.annotations import DEVICES
from unity_collage.graph.devices import with_listed_devices
from unity_collage.lowering.build import finish, lower
from unity_collage.lowering.shared_memory import TO_CPU
from unity_collage.passes import PlanDevices
from unity_collage.plan.placed import NamedDevice
from unity_collage.target import host_target

X = np.random.default_rng(0).standard_normal((64, 64), "float32")
HERE, THERE = (relax.VDevice(host_target(), number, "global") for number in (0, 1))


@I.ir_module
class Changing:
    """The second of two names of a value is changed in place."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @T.prim_func(private=True, s_tir=True)
    def grow(a: T.Buffer((64, 64), "float32")):
        for i, j in T.grid(64, 64):
            with T.sblock("a"):
                vi, vj = T.axis.remap("SS", [i, j])
                a[vi, vj] = a[vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor((64, 64), "float32", "llvm:0")):
        cls = Changing
        with R.dataflow():
            value = R.exp(x)
            there = R.to_vdevice(value, "llvm:1")
            changed = R.call_tir_inplace(
                cls.grow, (value,), inplace_indices=[0], out_ty=R.Tensor((64, 64), "float32", "llvm:0")
            )
            R.output(there, changed)
        return (there, changed)


def to_and_fro() -> IRModule:
    """Each value is read on the other device at once, and here again after values of its size were made and freed."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 64), "float32", HERE))
    with builder.function("main", [x]):
        with builder.dataflow():
            value, kept = x, []
            for _ in range(4):
                value = builder.emit(relax.op.tanh(relax.op.matmul(value, value)))
                there = builder.emit(relax.op.to_vdevice(value, THERE))
                kept.append(there)
                for _ in range(3):
                    there = builder.emit(relax.op.nn.relu(relax.op.matmul(there, there)))
                value = builder.emit(relax.op.to_vdevice(there, HERE))
            total = kept[0]
            for each in kept[1:]:
                total = builder.emit(relax.op.add(total, each))
            out = builder.emit_output(relax.op.to_vdevice(total, HERE))
        builder.emit_func_output(out)
    return builder.get()


def right() -> np.ndarray:
    value, kept = X, []
    for _ in range(4):
        value = np.tanh(value @ value)
        kept.append(value)
        for _ in range(3):
            value = np.maximum(value @ value, 0)
    return np.sum(kept, 0)


def calls(mod: IRModule) -> str:
    """The text of ``main`` before it becomes code."""
    target = host_target()
    with target:
        return finish(lower(mod, target), target)(lower(mod, target))["main"].script()


def test_a_value_gets_a_second_name() -> None:
    text = calls(to_and_fro())
    assert text.count(TO_CPU) == 8 and "vm.builtin.to_device" not in text


@pytest.mark.parametrize("measure", [False, True])
def test_memory_is_not_used_again_while_its_second_name_is(measure: bool) -> None:
    program = uc.compile(to_and_fro(), measure=measure, backends=["tvm"], recompile=True)
    for _ in range(2):
        np.testing.assert_allclose(program(X).numpy(), right(), rtol=1e-3, atol=1e-3)


def test_no_memory_is_stated_for_second_names() -> None:
    plan = uc.compile(to_and_fro(), measure=False, backends=["tvm"]).plan
    assert plan is not None
    nbytes = X.nbytes
    held = {space.device: max(space.live) for space in plan["main"].memory.spaces}
    assert held["llvm:0"] <= 6 * nbytes and held["llvm:1"] <= 3 * nbytes


def test_devices_with_memories_of_other_names_copy() -> None:
    apart = PlanDevices(memories={"llvm:0": "near", "llvm:1": "far"})(with_listed_devices(to_and_fro()))
    text = calls(apart)
    assert TO_CPU not in text and text.count("vm.builtin.to_device") == 8
    assert DEVICES.read(apart) == (NamedDevice(memory="near"), NamedDevice(memory="far"))


def test_a_copy_of_a_value_that_is_changed_in_place_keeps_the_old_value() -> None:
    assert TO_CPU not in calls(Changing)


def test_a_result_that_is_an_input_of_another_device_is_a_copy() -> None:
    """A caller may write to results."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 64), "float32", HERE))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.to_vdevice(x, THERE))
        builder.emit_func_output(out)
    program = uc.compile(builder.get(), measure=False)
    given = X.copy()
    found = program(given)
    assert str(found.device) == "cpu:1"
    given[:] = 0
    np.testing.assert_array_equal(found.numpy(), X)
