"""The six problems that TVM's RFC 38 on planning targets, devices and memory scopes begins with, one test each."""

from __future__ import annotations

import pytest
import tvm
from tvm.ir import IRModule
from tvm.relax.dpl import is_op, wildcard
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.errors import CollageError
from unity_collage.passes import MergeCopies, PartitionByDevice, PlaceByPattern, PlanDevices


@I.ir_module
class BigLittle:
    """Two processors of one device type, an accelerator's worth of work on each."""

    I.module_global_infos(
        {
            "vdevice": [
                I.vdevice({"kind": "llvm", "mcpu": "skylake"}, 0),
                I.vdevice({"kind": "llvm", "mcpu": "znver4"}, 1),
            ]
        }
    )

    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.exp(x)
            h = R.hint_on_device(a, tvm.cpu(1))
            v = R.hint_on_device(w, tvm.cpu(1))
            b = R.matmul(h, v)
            c = R.nn.relu(b)
            R.output(c)
        return c


def partitioned(mod: IRModule) -> IRModule:
    return tvm.transform.Sequential([PlanDevices(), PartitionByDevice()])(mod)


def test_1_a_device_type_does_not_tell_a_target() -> None:
    made = PlanDevices()(BigLittle)
    targets = [b.var.ty.vdevice.target.attrs["mcpu"] for b in made["main"].body.blocks[0].bindings]
    assert targets == ["skylake", "znver4", "znver4", "znver4", "znver4"]


def test_2_device_ids_reach_every_value() -> None:
    made = PlanDevices()(BigLittle)
    ids = [int(b.var.ty.vdevice.vdevice_id) for b in made["main"].body.blocks[0].bindings]
    assert ids == [0, 1, 1, 1, 1]
    assert int(made["main"].ret_ty.vdevice.vdevice_id) == 1


def test_3_memory_scopes_are_planned_with_devices() -> None:
    @I.ir_module
    class Scopes:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @T.prim_func(private=True, s_tir=True)
        def kernel(x: T.Buffer((4,), "float32", scope="texture"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("b"):
                    v = T.axis.spatial(4, i)
                    y[v] = x[v] * T.float32(2.0)

        @R.function(private=True)
        def inner(x: R.Tensor((4,), "float32")):
            cls = Scopes
            y = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((4,), "float32"))
            return y  # noqa: RET504 (TVMScript)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Scopes
            h = R.hint_on_device(x, tvm.cpu(1))
            y = cls.inner(h)
            return y  # noqa: RET504 (TVMScript)

    made = PlanDevices()(Scopes)
    copy = made["main"].body.blocks[0].bindings[0].var.ty.vdevice
    result = made["main"].ret_ty.vdevice
    assert (int(copy.vdevice_id), str(copy.memory_scope)) == (1, "texture")
    assert (int(result.vdevice_id), str(result.memory_scope)) == (1, "global")


def test_4_neighbours_of_one_device_become_functions_with_a_target() -> None:
    made = partitioned(BigLittle)
    inner = {g.name_hint: f for g, f in made.functions_items() if g.name_hint != "main"}
    assert {name: str(f.attrs["target"].attrs["mcpu"]) for name, f in inner.items()} == {
        "main_llvm_0_part": "skylake",
        "main_llvm_1_part": "znver4",
    }


def test_5_functions_of_a_backend_are_on_the_device_of_their_target() -> None:
    @I.ir_module
    class Library:
        I.module_global_infos(
            {"vdevice": [I.vdevice("llvm", 0), I.vdevice({"kind": "llvm", "mcpu": "znver4"}, 1)]}
        )

        @R.function(private=True)
        def kernel(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr(
                {"Codegen": "some", "target": T.target({"kind": "llvm", "mcpu": "znver4", "libs": ["some"]})}
            )
            y = R.exp(x)
            return y  # noqa: RET504 (TVMScript)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Library
            h = R.hint_on_device(x, tvm.cpu(1))
            y = cls.kernel(h)
            return y  # noqa: RET504 (TVMScript)

    made = PlanDevices()(Library)
    device = made["main"].ret_ty.vdevice
    assert device.target.attrs["mcpu"] == "znver4" and "libs" not in str(device.target), (
        "the least specialised"
    )


def test_5_a_hint_against_the_target_of_a_backend_is_refused() -> None:
    @I.ir_module
    class Library:
        I.module_global_infos(
            {"vdevice": [I.vdevice("llvm", 0), I.vdevice({"kind": "llvm", "mcpu": "znver4"}, 1)]}
        )

        @R.function(private=True)
        def kernel(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "some", "target": T.target({"kind": "llvm", "mcpu": "znver4"})})
            y = R.exp(x)
            return y  # noqa: RET504 (TVMScript)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Library
            h = R.hint_on_device(x, tvm.cpu(0))
            y = cls.kernel(h)
            return y  # noqa: RET504 (TVMScript)

    with pytest.raises(CollageError) as caught:
        PlanDevices()(Library)
    assert "R.hint_on_device of `h` in main says cpu:0" in str(caught.value)
    assert "the target of kernel says llvm -mcpu=znver4" in str(caught.value)
    assert "`main.h` - `kernel.x` (the call of kernel for `y` in main)" in str(caught.value)


def test_6_one_flow_for_devices_and_for_backends() -> None:
    """Patterns place, unification propagates, copies delimit, and regions are hoisted: for any target."""
    product = is_op("relax.nn.relu")(is_op("relax.matmul")(wildcard(), wildcard()))
    bare = tvm.transform.Sequential([PlaceByPattern([(product, "llvm:1")]), PlanDevices(), MergeCopies()])

    @I.ir_module
    class Before:
        I.module_global_infos(
            {"vdevice": [I.vdevice("llvm", 0), I.vdevice({"kind": "llvm", "mcpu": "znver4"}, 1)]}
        )

        @R.function
        def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.matmul(a, w)
                c = R.nn.relu(b)
                R.output(c)
            return c

    made = PartitionByDevice()(bare(Before))
    names = [gvar.name_hint for gvar in made.get_global_vars()]
    assert sorted(names) == ["main", "main_llvm_0_part", "main_llvm_1_part"]
