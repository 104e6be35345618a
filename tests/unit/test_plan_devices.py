"""PlanDevices: where annotations put values, where copies are made, and what a disagreement says."""

# ruff: noqa: RET504 (TVMScript)
from __future__ import annotations

import pytest
import tvm
import tvm_ffi
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.annotations import DEVICES, FREELY_PLACED
from unity_collage.errors import CollageError
from unity_collage.passes import PlanDevices


def planned(mod: IRModule, **options: object) -> IRModule:
    """The plan, which must not change when it is made again."""
    once = PlanDevices(**options)(mod)
    tvm.ir.assert_structural_equal(PlanDevices(**options)(once), once)
    return once


def shown(mod: IRModule) -> IRModule:
    """The plan without the lists of what was placed by default."""
    for gvar, func in mod.functions_items():
        if FREELY_PLACED.on(func):
            mod = mod.with_attr("none", 0).without_attr("none")
            mod.update_func(gvar, func.without_attr(FREELY_PLACED.name))
    return mod


def same(made: IRModule, expected: IRModule) -> None:
    tvm.ir.assert_structural_equal(shown(made), expected)


def test_two_ids_of_one_cpu() -> None:
    """A hint places its result and what reads it; a copy is made where the value crosses."""

    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                h = R.hint_on_device(a, tvm.cpu(1))
                b = R.add(h, R.const(1.0, "float32"))
                R.output(b)
            return b

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")) -> R.Tensor((4,), "float32", "llvm:1"):
            with R.dataflow():
                a: R.Tensor((4,), "float32", "llvm:0") = R.exp(x)
                h: R.Tensor((4,), "float32", "llvm:1") = R.to_vdevice(a, "llvm:1")
                b: R.Tensor((4,), "float32", "llvm:1") = R.add(h, R.const(1.0, "float32"))
                R.output(b)
            return b

    same(planned(Before), Expected)


def test_two_processors_have_a_target_each() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos(
            {"vdevice": [I.vdevice("llvm"), I.vdevice({"kind": "llvm", "mcpu": "znver4"}, 0)]}
        )

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.to_vdevice(a, "llvm:1")
                c = R.exp(b)
                R.output(c)
            return c

    made = planned(Before)
    a, b, c = (binding.var.ty.vdevice for binding in made["main"].body.blocks[0].bindings)
    assert a.target.attrs.get("mcpu") is None
    assert b.target.attrs["mcpu"] == c.target.attrs["mcpu"] == "znver4"


def test_without_annotations_all_is_on_the_default() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            return a

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")) -> R.Tensor((4,), "float32", "llvm:0"):
            with R.dataflow():
                a: R.Tensor((4,), "float32", "llvm:0") = R.exp(x)
                R.output(a)
            return a

    same(planned(Before, targets=["llvm"]), Expected)


def test_conditions_and_shapes_are_on_the_host() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos(
            {"vdevice": [I.vdevice({"kind": "cuda", "arch": "sm_90"}, 0), I.vdevice("llvm", 0)]}
        )

        @R.function
        def main(x: R.Tensor((4,), "float32"), n: R.Shape(["rows"])):
            limit = R.max(x)
            over = R.greater(limit, R.const(1.0, "float32"))
            sizes = R.shape_to_tensor(n)
            if over:
                y = R.exp(x)
            else:
                y = R.negative(x)
            return (y, sizes)

    @I.ir_module
    class Expected:
        I.module_global_infos(
            {"vdevice": [I.vdevice({"kind": "cuda", "arch": "sm_90"}, 0), I.vdevice("llvm", 0)]}
        )

        @R.function
        def main(x: R.Tensor((4,), "float32", "cuda:0"), n: R.Shape(["rows"])) -> R.Tuple(
            R.Tensor((4,), "float32", "cuda:0"), R.Tensor((1,), "int64", "llvm:0")
        ):
            limit: R.Tensor((), "float32", "cuda:0") = R.max(x)
            over: R.Tensor((), "bool", "cuda:0") = R.greater(limit, R.const(1.0, "float32"))
            sizes: R.Tensor((1,), "int64", "llvm:0") = R.shape_to_tensor(n)
            over_copy: R.Tensor((), "bool", "llvm:0") = R.to_vdevice(over, "llvm:0")
            if over_copy:
                y: R.Tensor((4,), "float32", "cuda:0") = R.exp(x)
            else:
                y: R.Tensor((4,), "float32", "cuda:0") = R.negative(x)
            return (y, sizes)

    same(planned(Before), Expected)


def test_branches_on_two_devices_meet_by_a_copy() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            if c:
                a = R.exp(x)
                y = R.to_vdevice(a, "llvm:1")
            else:
                h = R.hint_on_device(x, tvm.cpu(1))
                y = R.negative(h)
            return y

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0"), c: R.Tensor((), "bool", "llvm:0")) -> R.Tensor(
            (4,), "float32", "llvm:1"
        ):
            if c:
                a: R.Tensor((4,), "float32", "llvm:0") = R.exp(x)
                y: R.Tensor((4,), "float32", "llvm:1") = R.to_vdevice(a, "llvm:1")
            else:
                h: R.Tensor((4,), "float32", "llvm:1") = R.to_vdevice(x, "llvm:1")
                y: R.Tensor((4,), "float32", "llvm:1") = R.negative(h)
            return y

    same(planned(Before), Expected)


def test_a_private_function_is_where_its_call_needs_it() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function(private=True)
        def twice(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.add(x, x)
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            h = R.hint_on_device(x, tvm.cpu(1))
            a = cls.twice(h)
            t = (x, a)
            return t

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function(private=True)
        def twice(x: R.Tensor((4,), "float32", "llvm:1")) -> R.Tensor((4,), "float32", "llvm:1"):
            y: R.Tensor((4,), "float32", "llvm:1") = R.add(x, x)
            return y

        @R.function
        def main(
            x: R.Tensor((4,), "float32", "llvm:0"),
        ) -> R.Tuple(R.Tensor((4,), "float32", "llvm:0"), R.Tensor((4,), "float32", "llvm:1")):
            cls = Expected
            h: R.Tensor((4,), "float32", "llvm:1") = R.to_vdevice(x, "llvm:1")
            a: R.Tensor((4,), "float32", "llvm:1") = cls.twice(h)
            t: R.Tuple(R.Tensor((4,), "float32", "llvm:0"), R.Tensor((4,), "float32", "llvm:1")) = (x, a)
            return t

    same(planned(Before), Expected)


def test_a_library_function_that_is_pinned_places_its_operands() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function(private=True)
        def kernel(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "some", "collage.device": "llvm:1"})

            @R.function
            def part(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                R.func_attr({"Composite": "some.exp"})
                z = R.exp(y)
                return z

            a = part(x)
            return a

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            cls = Before
            a = cls.kernel(x)
            b = R.exp(y)
            return (a, b)

    made = planned(Before)
    x, y = made["main"].params
    assert (x.ty.vdevice.vdevice_id, y.ty.vdevice.vdevice_id) == (1, 0)
    assert made["kernel"].ret_ty.vdevice.vdevice_id == 1
    part = made["kernel"].body.blocks[0].bindings[0].value
    assert part.attrs["Composite"] == "some.exp" and part.ret_ty.vdevice is None, "its text would not parse"


@I.ir_module
class Lowered:
    """A kernel that reads textures and one that reads global memory."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0)]})

    @T.prim_func(private=True, s_tir=True)
    def textured(x: T.Buffer((4,), "float32", scope="texture"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] * T.float32(2.0)

    @T.prim_func(private=True, s_tir=True)
    def plain(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] + T.float32(2.0)

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = Lowered
        with R.dataflow():
            a = R.call_tir(cls.textured, (x,), out_ty=R.Tensor((4,), "float32"))
            b = R.call_tir(cls.plain, (x,), out_ty=R.Tensor((4,), "float32"))
            c = R.call_tir(cls.textured, (b,), out_ty=R.Tensor((4,), "float32"))
            d = R.call_tir(cls.plain, (y,), out_ty=R.Tensor((4,), "float32"))
            R.output(a, c, d)
        return (a, c, d)


@I.ir_module
class LoweredAndPlanned:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 0, "texture")]})

    @T.prim_func(private=True, s_tir=True)
    def textured(x: T.Buffer((4,), "float32", scope="texture"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] * T.float32(2.0)

    @T.prim_func(private=True, s_tir=True)
    def plain(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                v = T.axis.spatial(4, i)
                y[v] = x[v] + T.float32(2.0)

    @R.function
    def main(x: R.Tensor((4,), "float32", "llvm:1"), y: R.Tensor((4,), "float32", "llvm:0")):
        cls = LoweredAndPlanned
        with R.dataflow():
            a = R.call_tir(cls.textured, (x,), out_ty=R.Tensor((4,), "float32", "llvm:0"))
            x_copy: R.Tensor((4,), "float32", "llvm:0") = R.to_vdevice(x, "llvm:0")
            b = R.call_tir(cls.plain, (x_copy,), out_ty=R.Tensor((4,), "float32", "llvm:0"))
            b_copy: R.Tensor((4,), "float32", "llvm:1") = R.to_vdevice(b, "llvm:1")
            c = R.call_tir(cls.textured, (b_copy,), out_ty=R.Tensor((4,), "float32", "llvm:0"))
            d = R.call_tir(cls.plain, (y,), out_ty=R.Tensor((4,), "float32", "llvm:0"))
            R.output(a, c, d)
        return (a, c, d)


def test_scopes_of_buffers_flow_back_to_callers_and_copies_are_made_where_two_differ() -> None:
    same(planned(Lowered), LoweredAndPlanned)


def test_a_plan_is_made_again_with_more_annotations() -> None:
    """What was placed by default moves; what an annotation placed stays."""

    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32", "llvm:0")):
            a = R.exp(x)
            b = R.exp(y)
            return (a, b)

    once = planned(Before)
    moved = planned(once, default="llvm:1")
    assert [int(param.ty.vdevice.vdevice_id) for param in once["main"].params] == [0, 0]
    assert [int(param.ty.vdevice.vdevice_id) for param in moved["main"].params] == [1, 0]


def test_free_parts_of_a_vdevice_are_chosen() -> None:
    """``collage.devices`` says that the second VDevice names a target only."""

    @I.ir_module
    class Before:
        I.module_attrs({"collage.devices": [{}, {"free": ["id", "scope"], "name": "big"}]})
        I.module_global_infos(
            {"vdevice": [I.vdevice("llvm"), I.vdevice({"kind": "llvm", "mcpu": "znver4"}, 0)]}
        )

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:1")):
            h = R.hint_on_device(x, tvm.cpu(3))
            y = R.to_vdevice(x, "llvm:1")
            z = R.add(h, y)
            return z

    made = planned(Before)
    z = made["main"].ret_ty.vdevice
    assert (z.target.attrs["mcpu"], int(z.vdevice_id)) == ("znver4", 3)
    assert DEVICES.read(made)[1].name == "big"


def test_names_of_devices_are_in_messages() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            a = R.add(x, y)
            return a

    made = planned(Before, targets={"little": "llvm", "big": "llvm -mcpu=znver4"}, default="big")
    assert made["main"].ret_ty.vdevice.target.attrs["mcpu"] == "znver4"
    with pytest.raises(CollageError, match=r"no device 'bug:1'.*there are: big, little"):
        PlanDevices(default="bug:1")(made)


def test_a_disagreement_names_both_annotations_and_what_is_between() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            h = R.hint_on_device(x, tvm.cpu(0))
            e = R.exp(h)
            k = R.hint_on_device(y, tvm.cpu(1))
            s = R.add(e, k)
            return s

    with pytest.raises(CollageError) as caught:
        PlanDevices()(Before)
    text = str(caught.value)
    assert "R.hint_on_device of `h` in main says cpu:0" in text
    assert "R.hint_on_device of `k` in main says cpu:1" in text
    assert "`h` - `e` - `s` - `k` (R.exp for `e` in main, R.add for `s` in main)" in text
    assert "\n" not in text
    assert "Put R.to_vdevice or R.hint_on_device on `k` before R.add for `s` in main" in text


def test_a_hint_for_a_kind_without_a_target_says_so() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0)]})

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            h = R.hint_on_device(x, tvm.cuda(0))
            return h

    with pytest.raises(CollageError, match="says cuda:0, and no target is of this kind: add one"):
        PlanDevices()(Before)


def test_another_pass_that_placed_values_is_respected() -> None:
    """RealizeVDevice puts types on what its hint reaches; we plan the rest."""

    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                h = R.hint_on_device(x, tvm.cpu(1))
                a = R.exp(h)
                b = R.exp(y)
                R.output(a, b)
            return (a, b)

    theirs = tvm.relax.transform.RealizeVDevice()(Before)
    made = planned(theirs)
    assert [int(p.ty.vdevice.vdevice_id) for p in made["main"].params] == [1, 0]
    assert tvm_ffi.structural_equal(planned(made), made)


def test_a_literal_gets_a_place_where_its_type_needs_one() -> None:
    """Operators read literals anywhere; parameters, results and fields of tuples have a VDevice."""

    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function(private=True)
        def count(i: R.Tensor((), "int32"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            c = R.less(i, R.const(3, "int32"))
            if c:
                j = R.add(i, R.const(1, "int32"))
                y = R.add(x, x)
                z = cls.count(j, y)
            else:
                z = x
            return z

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            h = R.hint_on_device(x, tvm.cpu(1))
            y = cls.count(R.const(0, "int32"), h)
            return (y, R.const(2.0, "float32"))

    made = planned(Before)
    i, x = made["count"].params
    assert (int(i.ty.vdevice.vdevice_id), int(x.ty.vdevice.vdevice_id)) == (0, 1)
    bindings = made["main"].body.blocks[0].bindings
    assert [binding.value.op.name for binding in bindings if isinstance(binding.value.op, tvm.ir.Op)] == [
        "relax.to_vdevice"
    ] * 3


def test_fields_of_a_tuple_are_copied_one_by_one() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0)]})

        @T.prim_func(private=True, s_tir=True)
        def kernel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32", scope="texture")):
            for i in range(4):
                with T.sblock("b"):
                    v = T.axis.spatial(4, i)
                    y[v] = x[v] * T.float32(2.0)

        @R.function
        def main(x: R.Tensor((4,), "float32"), z: R.Tensor((4,), "float32", "llvm:0")):
            cls = Before
            a = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((4,), "float32"))
            t = (a, z)
            b = R.concat(t)
            return b

    made = planned(Before)
    values = [binding.value for block in made["main"].body.blocks for binding in block.bindings]
    copied = [v for v in values if isinstance(v, tvm.relax.Call) and v.op.name == "relax.to_vdevice"]
    assert len(copied) == 1, "only one field is in another scope than the result"
