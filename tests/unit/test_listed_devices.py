"""Virtual devices in a module: the list, the devices of the machine, constants, memory and the targets of kernels."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.target import Target

from unity_collage.errors import CollageError
from unity_collage.graph import DataflowGraph
from unity_collage.graph.devices import (
    first_target,
    listed,
    places_of,
    targets_in,
    with_listed_devices,
    without_devices,
)
from unity_collage.lowering.kernel_targets import with_kernel_targets
from unity_collage.lowering.outlined import external_function, kernel_function
from unity_collage.lowering.places import MemoryByDevice, with_placed_constants
from unity_collage.plan.candidate import Candidate
from unity_collage.runtime.virtual_machine import PLACED

PLAIN = Target("llvm")
MTRIPLE = f'"mtriple": "{PLAIN.attrs["mtriple"]}"'
WEIGHTS = np.ones((16, 16), "float32")


@I.ir_module
class TwoDevices:
    I.module_global_infos(
        {
            "vdevice": [
                I.vdevice("llvm", 0),
                I.vdevice({"kind": "cuda", "arch": "sm_90"}, 0),
                I.vdevice("llvm", 1),
            ]
        }
    )

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0")) -> R.Tensor((4, 16), "float32", "llvm:1"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.to_vdevice(a, "llvm:1")
            c = R.exp(b)
            R.output(c)
        return c


def copy_of(device: relax.VDevice) -> relax.VDevice:
    return relax.VDevice(device.target, device.vdevice_id, device.memory_scope)


def with_copies(mod: IRModule) -> IRModule:
    """``mod`` without a list, and with another object for each mention of a virtual device in a type."""
    func = tvm_ffi.structural_map(mod["main"], (relax.VDevice, copy_of))
    return IRModule({"main": func})


def test_equal_virtual_devices_become_those_that_the_module_lists() -> None:
    text = with_copies(TwoDevices).script()
    assert "llvm:-1" in text
    mended = with_listed_devices(with_copies(TwoDevices))
    assert "llvm:-1" not in mended.script()
    assert len(listed(mended)) == 2
    tvm.ir.assert_structural_equal(mended, tvm.script.from_source(mended.script()))


def test_a_list_keeps_its_order_and_what_is_not_used() -> None:
    assert [str(device) for device in listed(with_listed_devices(TwoDevices))] == list(
        map(str, listed(TwoDevices))
    )


def test_a_module_without_virtual_devices_does_not_change() -> None:
    mod = IRModule({"main": without_devices(TwoDevices["main"])})
    bare = IRModule({"main": kernel_of(mod, (0,))})
    assert with_listed_devices(bare) is bare
    assert places_of(bare) == () and first_target(bare) is None


def test_places_are_numbered_as_the_list_and_unused_ones_are_on_the_first() -> None:
    assert places_of(TwoDevices) == ("cpu:0", "cpu:0", "cpu:1")
    assert [target.kind.name for target in targets_in(TwoDevices)] == ["llvm"]


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (relax.VDevice(Target("ext_dev"), 2, "global"), "values are on ext_dev:2, and programs run on CPUs"),
        (relax.VDevice(PLAIN, 0, "vtcm"), "in the memory scope 'vtcm' of cpu:0"),
    ],
)
def test_a_device_that_no_program_runs_on_is_refused(device: relax.VDevice, reason: str) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32", device))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    with pytest.raises(CollageError, match=reason):
        places_of(with_listed_devices(builder.get()))


def kernel_of(mod: IRModule, indexes: tuple[int, ...]) -> relax.Function:
    graph = DataflowGraph(mod["main"])
    return kernel_function(graph, Candidate(0, "onednn", "typed", "kernel", indexes))


def test_the_text_of_a_function_for_a_code_generator_parses_back() -> None:
    func = external_function(kernel_of(TwoDevices, (2,)), "onednn", "exp", "onednn_exp")
    mod = with_listed_devices(IRModule({"onednn_exp": func}, global_infos=TwoDevices.global_infos))
    assert 'vdevice="llvm:1:global"' in mod.script()
    tvm.ir.assert_structural_equal(mod, tvm.script.from_source(mod.script()))


@I.ir_module
class Kernels:
    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm", 0), I.vdevice({"kind": "llvm", "mcpu": "x86-64-v3"}, 1)]}
    )

    @T.prim_func(private=True, s_tir=True)
    def scale(a: T.Buffer((16,), "float32"), w: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.sblock("scale"):
                vi = T.axis.spatial(16, i)
                b[vi] = a[vi] * w[vi]

    @R.function
    def main(x: R.Tensor((16,), "float32", "llvm:0")) -> R.Tensor((16,), "float32", "llvm:1"):
        cls = Kernels
        with R.dataflow():
            a = R.call_tir(cls.scale, (x, R.const(WEIGHTS[0])), out_ty=R.Tensor((16,), "float32", "llvm:0"))
            b = R.to_vdevice(a, "llvm:1")
            c = R.call_tir(cls.scale, (b, R.const(WEIGHTS[1])), out_ty=R.Tensor((16,), "float32", "llvm:1"))
            d = R.call_tir(cls.scale, (c, R.const(WEIGHTS[2])), out_ty=R.Tensor((16,), "float32", "llvm:1"))
            R.output(d)
        return d


def test_a_kernel_of_two_targets_becomes_one_for_each() -> None:
    mod = with_kernel_targets(Kernels, PLAIN)
    kernels = {g.name_hint: f for g, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}
    assert sorted(kernels) == ["scale", "scale_1"]
    assert "target" not in kernels["scale"].attrs
    assert kernels["scale_1"].attrs["target"].attrs["mcpu"] == "x86-64-v3"
    called = [
        b.value.args[0].name_hint for b in mod["main"].body.blocks[0].bindings if len(b.value.args) == 2
    ]
    assert called == ["scale", "scale_1", "scale_1"]
    tvm.ir.assert_structural_equal(mod, tvm.script.from_source(mod.script(show_meta=True)))


def test_kernels_of_the_target_in_scope_do_not_change() -> None:
    same = tvm.script.from_source(Kernels.script(show_meta=True).replace('"mcpu": "x86-64-v3"', MTRIPLE))
    assert len(targets_in(same)) == 1
    assert with_kernel_targets(same, targets_in(same)[0]) is same


def test_constants_of_other_devices_are_placed_once() -> None:
    mod = with_placed_constants(Kernels)
    assert [param.name for param in mod["main"].params] == ["x", "placed0", "placed1"]
    assert [str(param.ty.vdevice.vdevice_id) for param in mod["main"].params] == ["0", "1", "1"]
    first, _, second, third = (binding.value for binding in mod["main"].body.blocks[0].bindings)
    assert isinstance(first.args[1].fields[1], tvm.ir.GenericConst)
    assert [call.args[1].fields[1].name for call in (second, third)] == ["placed0", "placed1"]
    placing = mod[PLACED]
    assert len(placing.ret_ty.fields) == 2
    assert all(int(field.vdevice.vdevice_id) == 1 for field in placing.ret_ty.fields)
    tvm.ir.assert_structural_equal(mod, tvm.script.from_source(mod.script(show_meta=True)))


def test_constants_of_one_device_stay() -> None:
    bare = IRModule(
        {"main": kernel_of(TwoDevices, (0,)), "other": without_devices(kernel_of(TwoDevices, (2,)))}
    )
    assert with_placed_constants(bare) is bare


@I.ir_module
class Chain:
    """Memory of ``z`` is free when ``c`` is allocated, on another device."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((16,), "float32", "llvm:0")) -> R.Tensor((16,), "float32", "llvm:1"):
        R.func_attr({"relax.force_pure": True})
        z: R.Tensor((16,), "float32", "llvm:0") = R.builtin.alloc_tensor(
            R.shape([16]), "float32", 0, "global"
        )
        _ = R.call_packed("step", x, z, ty_args=(R.Tuple(),))
        a: R.Tensor((16,), "float32", "llvm:0") = R.builtin.alloc_tensor(
            R.shape([16]), "float32", 0, "global"
        )
        _0 = R.call_packed("step", z, a, ty_args=(R.Tuple(),))
        b: R.Tensor((16,), "float32", "llvm:1") = R.to_vdevice(a, "llvm:1")
        c: R.Tensor((16,), "float32", "llvm:1") = R.builtin.alloc_tensor(
            R.shape([16]), "float32", 1, "global"
        )
        _1 = R.call_packed("step", b, c, ty_args=(R.Tuple(),))
        d: R.Tensor((16,), "float32", "llvm:1") = R.builtin.alloc_tensor(
            R.shape([16]), "float32", 1, "global"
        )
        _2 = R.call_packed("step", c, d, ty_args=(R.Tuple(),))
        return d


def storages(mod: IRModule) -> list[tuple[int, str]]:
    """The device and memory scope of each storage."""
    found: list[tuple[int, str]] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.memory.alloc_storage":
            found.append((int(expr.args[1].value), str(expr.args[2].value)))

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def test_values_of_two_devices_share_no_memory() -> None:
    stock = relax.transform.StaticPlanBlockMemory()
    assert [device for device, _ in storages(stock(Chain))] == [0], "TVM keeps devices apart by now"
    planned = MemoryByDevice(stock)(Chain)
    assert sorted(storages(planned)) == [(0, "global"), (1, "global")]
    assert "global@" not in planned.script()
