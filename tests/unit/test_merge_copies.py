"""MergeCopies: which copies between devices are left."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.devices.copies import why_left_alone
from unity_collage.passes import MergeCopies, PlanDevices


def merged(mod: IRModule) -> IRModule:
    """The module with fewer copies, which must not change when the pass runs again."""
    once = MergeCopies()(mod)
    tvm.ir.assert_structural_equal(MergeCopies()(once), once)
    return once


def copies(mod: IRModule) -> list[str]:
    """What is copied in ``main``."""
    found: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.to_vdevice":
            found.append(expr.args[0].name)

    relax.analysis.post_order_visit(mod["main"], visit)
    return found


def test_one_copy_for_a_value_and_a_destination() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")):
            with R.dataflow():
                a = R.to_vdevice(x, "llvm:1")
                b = R.exp(a)
                c = R.to_vdevice(x, "llvm:1")
                d = R.add(b, c)
                R.output(d)
            return d

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")):
            with R.dataflow():
                a = R.to_vdevice(x, "llvm:1")
                b = R.exp(a)
                d = R.add(b, a)
                R.output(d)
            return d

    tvm.ir.assert_structural_equal(merged(Before), Expected)


def test_there_and_back_is_no_copy() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")):
            with R.dataflow():
                a = R.exp(x)
                b = R.to_vdevice(a, "llvm:1")
                c = R.to_vdevice(b, "llvm:0")
                d = R.to_vdevice(c, "llvm:0")
                e = R.negative(d)
                R.output(e)
            return e

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")):
            with R.dataflow():
                a = R.exp(x)
                e = R.negative(a)
                R.output(e)
            return e

    tvm.ir.assert_structural_equal(merged(Before), Expected)


def test_a_copy_moves_over_operators_that_nobody_has_placed() -> None:
    """``x`` is copied once instead of ``exp(x)`` and ``tanh(-x)``."""

    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")):
            with R.dataflow():
                a = R.exp(x)
                n = R.negative(x)
                b = R.tanh(n)
                c = R.to_vdevice(a, "llvm:1")
                d = R.to_vdevice(b, "llvm:1")
                e = R.matmul(c, d)
                R.output(e)
            return e

    assert copies(merged(Before)) == ["a", "b"], "types place them"

    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")):
            with R.dataflow():
                x_there = R.to_vdevice(x, "llvm:1")
                a_there = R.exp(x_there)
                n_there = R.negative(x_there)
                b_there = R.tanh(n_there)
                e = R.matmul(a_there, b_there)
                R.output(e)
            return e

    record = [{"on": 0, "free": ["target", "id"], "values": ["a", "b", "n"]}]
    free = IRModule({"main": Before["main"].with_attr("collage.freely_placed", record)})
    free = IRModule(free.functions, global_infos={"vdevice": list(Before.global_infos["vdevice"])})
    made = merged(free)
    bare = IRModule(
        {"main": made["main"].without_attr("collage.freely_placed")}, global_infos=made.global_infos
    )
    tvm.ir.assert_structural_equal(bare, Expected)


def test_a_copy_does_not_move_over_what_shrinks() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.astype(x, "float16")
                b = R.astype(x, "int8")
                c = R.to_vdevice(a, "llvm:1")
                d = R.to_vdevice(b, "llvm:1")
                R.output(c, d)
            return (c, d)

    assert copies(merged(PlanDevices()(Before))) == ["a", "b"]


def test_a_branch_sees_copies_made_before_it_but_not_those_of_the_other() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0"), c: R.Tensor((), "bool", "llvm:0")):
            y = R.exp(x)
            x1 = R.to_vdevice(x, "llvm:1")
            if c:
                a = R.to_vdevice(x, "llvm:1")
                b = R.to_vdevice(y, "llvm:1")
                z = R.add(a, b)
            else:
                b2 = R.to_vdevice(y, "llvm:1")
                z = R.multiply(x1, b2)
            return z

    assert copies(merged(Before)) == ["x", "y", "y"]


def test_a_copy_starts_in_the_memory_that_its_destination_shares() -> None:
    """The copy from ``b`` moves nothing; that from ``x`` would."""

    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1), I.vdevice("llvm", 2)]})

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")):
            with R.dataflow():
                b = R.to_vdevice(x, "llvm:1")
                c = R.to_vdevice(x, "llvm:2")
                R.output(b, c)
            return (b, c)

    assert copies(merged(PlanDevices()(Before))) == ["x", "x"]
    shared = PlanDevices(memories={"llvm:1": "second", "llvm:2": "second"})(Before)
    assert copies(merged(shared)) == ["x", "b"]


def test_functions_that_change_memory_keep_their_copies() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32", "llvm:0")):
            a = R.to_vdevice(x, "llvm:1")
            R.call_packed("grow", x, ty_args=R.Tuple)
            b = R.to_vdevice(a, "llvm:0")
            return b  # noqa: RET504 (TVMScript)

    assert why_left_alone(Before["main"]) == "it may change memory"
    assert copies(merged(Before)) == ["x", "a"]


def test_functions_that_call_one_that_changes_memory_keep_their_copies() -> None:
    @I.ir_module
    class Before:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @T.prim_func(private=True, s_tir=True)
        def grown(x: T.Buffer((T.int64(4),), "float32")):
            for i in range(T.int64(4)):
                with T.sblock("grown"):
                    vi = T.axis.remap("S", [i])
                    x[vi] = x[vi] + T.float32(10)

        @R.function(private=True)
        def step(k: R.Tensor((4,), "float32", "llvm:1")) -> R.Tensor((4,), "float32", "llvm:1"):
            cls = Before
            return R.call_tir_inplace(
                cls.grown, (k,), inplace_indices=[0], out_ty=R.Tensor((4,), "float32", "llvm:1")
            )

        @R.function
        def main(x: R.Tensor((4,), "float32", "llvm:0")) -> R.Tensor((4,), "float32", "llvm:1"):
            cls = Before
            a = R.to_vdevice(x, "llvm:1")
            y: R.Tensor((4,), "float32", "llvm:1") = cls.step(a)
            b = R.to_vdevice(x, "llvm:1")
            return R.add(y, b)

    assert why_left_alone(Before["main"], Before) == "step, which it calls, changes memory"
    assert copies(merged(Before)) == ["x", "x"]
