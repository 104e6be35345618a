"""PartitionByDevice: regions of one device become functions, and no two of them read each other."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage import reference
from unity_collage.annotations import FREELY_PLACED
from unity_collage.devices.regions import regions
from unity_collage.errors import CollageError, MissingAnnotation
from unity_collage.passes import PartitionByDevice, PlanDevices


def partitioned(mod: IRModule, projection: str = "device") -> IRModule:
    """The functions, which must not change when the pass runs again."""
    once = PartitionByDevice(projection)(mod)
    tvm.ir.assert_structural_equal(PartitionByDevice(projection)(once), once)
    return once


@I.ir_module
class Crossing:
    """There and back: the first and the last part of one device cannot be one function."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.negative(a)
            free = R.tanh(x)
            h = R.hint_on_device(b, tvm.cpu(1))
            c = R.add(h, h)
            d = R.to_vdevice(c, "llvm:0")
            e = R.multiply(d, free)
            R.output(e)
        return e


def test_neighbours_of_one_device_are_one_function() -> None:
    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function(private=True)
        def main_llvm_0_part(
            x: R.Tensor((4,), "float32", "llvm:0"),
        ) -> R.Tuple(R.Tensor((4,), "float32", "llvm:0"), R.Tensor((4,), "float32", "llvm:0")):
            R.func_attr({"collage.device": "llvm:0", "target": T.target({"kind": "llvm"})})
            with R.dataflow():
                a: R.Tensor((4,), "float32", "llvm:0") = R.exp(x)
                b: R.Tensor((4,), "float32", "llvm:0") = R.negative(a)
                free: R.Tensor((4,), "float32", "llvm:0") = R.tanh(x)
                R.output(b, free)
            return (b, free)

        @R.function(private=True)
        def main_llvm_1_part(h: R.Tensor((4,), "float32", "llvm:1")) -> R.Tensor((4,), "float32", "llvm:1"):
            R.func_attr({"collage.device": "llvm:1", "target": T.target({"kind": "llvm"})})
            with R.dataflow():
                c: R.Tensor((4,), "float32", "llvm:1") = R.add(h, h)
                R.output(c)
            return c

        @R.function(private=True)
        def main_llvm_0_part1(
            d: R.Tensor((4,), "float32", "llvm:0"), free: R.Tensor((4,), "float32", "llvm:0")
        ) -> R.Tensor((4,), "float32", "llvm:0"):
            R.func_attr({"collage.device": "llvm:0", "target": T.target({"kind": "llvm"})})
            with R.dataflow():
                e: R.Tensor((4,), "float32", "llvm:0") = R.multiply(d, free)
                R.output(e)
            return e

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")) -> R.Tensor((4,), "float32", "llvm:0"):
            cls = Expected
            with R.dataflow():
                both = cls.main_llvm_0_part(x)
                b: R.Tensor((4,), "float32", "llvm:0") = both[0]
                free: R.Tensor((4,), "float32", "llvm:0") = both[1]
                h: R.Tensor((4,), "float32", "llvm:1") = R.to_vdevice(b, "llvm:1")
                c: R.Tensor((4,), "float32", "llvm:1") = cls.main_llvm_1_part(h)
                d: R.Tensor((4,), "float32", "llvm:0") = R.to_vdevice(c, "llvm:0")
                e: R.Tensor((4,), "float32", "llvm:0") = cls.main_llvm_0_part1(d, free)
                R.output(e)
            return e

    made = partitioned(PlanDevices()(Crossing))
    bare = IRModule(
        {g: f.without_attr(FREELY_PLACED.name) for g, f in made.functions_items()},
        global_infos={"vdevice": list(made.global_infos["vdevice"])},
    )
    tvm.ir.assert_structural_equal(bare, Expected)


def test_a_plan_of_the_functions_is_the_same_plan() -> None:
    made = partitioned(PlanDevices()(Crossing))
    again = PlanDevices()(made)
    x = np.arange(4, dtype="float32") / 4
    for mod in (made, again):
        (out,) = reference.run(mod["main"], [x], mod)
        np.testing.assert_allclose(out, -2 * np.exp(x) * np.tanh(x), rtol=1e-6)
    assert sum("collage.device" in func.attrs for func in again.functions.values()) == 3


def test_regions_of_a_target_hold_copies_between_its_devices() -> None:
    made = partitioned(PlanDevices()(Crossing), "target")
    assert len(made.functions) == 2
    (inner,) = (func for gvar, func in made.functions_items() if gvar.name_hint != "main")
    values = [binding.value for binding in inner.body.blocks[0].bindings]
    assert sum(isinstance(v, relax.Call) and v.op.name == "relax.to_vdevice" for v in values) == 2
    assert "collage.device" not in inner.attrs and inner.attrs["target"].kind.name == "llvm"


def test_sizes_that_no_operand_says_are_passed() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0)]})

        @R.function
        def main(x: R.Tensor(("n", 2), "float32", "llvm:0"), s: R.Shape(["n", "k"])):
            n, k = T.int64(), T.int64()
            with R.dataflow():
                z = R.zeros((n, k), "float32")
                y = R.exp(z)
                R.output(y)
            return y

    made = partitioned(PlanDevices()(Before))
    (inner,) = (func for gvar, func in made.functions_items() if gvar.name_hint != "main")
    assert isinstance(inner.params[-1].ty, relax.ShapeType)


def test_a_branch_has_functions_of_its_own() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            if c:
                with R.dataflow():
                    h = R.hint_on_device(x, tvm.cpu(1))
                    a = R.exp(h)
                    b = R.negative(a)
                    R.output(b)
                y = b
            else:
                z = R.to_vdevice(x, "llvm:1")
                y = R.exp(z)
            return y

    made = partitioned(PlanDevices()(Before))
    assert {gvar.name_hint for gvar in made.get_global_vars()} == {"main", "main_llvm_1_part"}


def test_without_a_plan_it_names_the_pass_to_run() -> None:
    with pytest.raises(MissingAnnotation, match="run PlanDevices first"):
        PartitionByDevice()(Crossing)
    with pytest.raises(CollageError, match="there are: vdevice, device, target"):
        PartitionByDevice("kind")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int | None], list[list[int]]]:
    size = draw(st.integers(1, 12))
    keys = draw(st.lists(st.sampled_from([0, 1, 2, None]), min_size=size, max_size=size))
    reads = [draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else [] for i in range(size)]
    return keys, reads


@given(graphs())
def test_regions_have_an_order_and_none_can_be_joined(
    graph: tuple[list[int | None], list[list[int]]],
) -> None:
    keys, reads = graph
    made = regions(keys, reads)
    assert sorted(i for region in made for i in region.inside) == list(range(len(keys)))
    seen: set[int] = set()
    for region in made:
        assert {keys[i] for i in region.inside} == {region.key}
        assert {source for i in region.inside for source in reads[i]} <= seen | set(region.inside)
        seen |= set(region.inside)


@I.ir_module
class ChangedInABranchOfADevice:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(2), T.int64(2)), "float32")):
        for i, j in T.grid(T.int64(2), T.int64(2)):
            with T.sblock("grown"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = x[vi, vj] + T.float32(10)

    @R.function
    def main(x: R.Tensor((4,), "float32", "llvm:0"), c: R.Tensor((), "bool", "llvm:0")):
        cls = ChangedInABranchOfADevice
        if c:
            with R.dataflow():
                v: R.Tensor((2, 2), "float32", "llvm:0") = R.reshape(x, (2, 2))
                t: R.Tensor((4,), "float32", "llvm:1") = R.to_vdevice(x, "llvm:1")
                y: R.Tensor((2, 2), "float32", "llvm:0") = R.call_tir_inplace(
                    cls.grown, (v,), inplace_indices=[0], out_ty=R.Tensor((2, 2), "float32", "llvm:0")
                )
                R.output(t, y)
            z: R.Tensor((4,), "float32", "llvm:1") = t
        else:
            z: R.Tensor((4,), "float32", "llvm:1") = R.to_vdevice(x, "llvm:1")
        return z


def test_a_branch_copies_a_value_before_its_memory_changes() -> None:
    made = PartitionByDevice()(ChangedInABranchOfADevice)["main"]
    (chosen,) = (
        b.value for block in made.body.blocks for b in block.bindings if isinstance(b.value, relax.If)
    )
    names = [binding.var.name for block in chosen.true_branch.blocks for binding in block.bindings]
    assert names.index("t") < names.index("y")
