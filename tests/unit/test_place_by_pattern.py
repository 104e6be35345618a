"""PlaceByPattern: which operands get hints, and what PlanDevices makes of them."""

from __future__ import annotations

import pytest
import tvm
from tvm.ir import IRModule
from tvm.relax.dpl import is_op, wildcard
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.errors import CollageError
from unity_collage.graph.calls import op_name
from unity_collage.passes import PlaceByPattern, PlanDevices

PRODUCT = is_op("relax.nn.relu")(is_op("relax.matmul")(wildcard(), wildcard()))


@I.ir_module
class Before:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.matmul(a, w)
            c = R.nn.relu(b)
            d = R.matmul(c, w)
            e = R.nn.relu(d)
            f = R.tanh(e)
            R.output(f)
        return f


def places(mod: IRModule) -> dict[str, int]:
    return {b.var.name: int(b.var.ty.vdevice.vdevice_id) for b in mod["main"].body.blocks[0].bindings}


def test_operands_of_a_match_get_hints_and_neighbours_of_one_device_none() -> None:
    @I.ir_module
    class Expected:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.exp(x)
                a_placed = R.hint_on_device(a, tvm.cpu(1))
                w_placed = R.hint_on_device(w, tvm.cpu(1))
                b = R.matmul(a_placed, w_placed)
                c = R.nn.relu(b)
                d = R.matmul(c, w_placed)
                e = R.nn.relu(d)
                e_placed = R.hint_on_device(e, tvm.cpu(0))
                f = R.tanh(e_placed)
                R.output(f)
            return f

    made = PlaceByPattern([(PRODUCT, "llvm:1")], others="llvm:0")(Before)
    tvm.ir.assert_structural_equal(made, Expected)


def test_what_reads_a_match_follows_it() -> None:
    made = PlanDevices()(PlaceByPattern([(PRODUCT, "llvm:1")])(Before))
    on = places(made)
    assert (on["a"], on["b"], on["e"], on["f"]) == (0, 1, 1, 1)


def test_a_predicate_selects_single_calls_and_the_first_rule_holds() -> None:
    rules = [(lambda call: op_name(call) == "relax.exp", "llvm:1"), (lambda call: True, "llvm:0")]
    on = places(PlanDevices()(PlaceByPattern(rules)(Before)))
    assert [on[name] for name in ("a", "b", "c", "f")] == [1, 0, 0, 0]


def test_what_an_earlier_plan_placed_by_default_moves() -> None:
    rules = PlaceByPattern([(PRODUCT, "llvm:1")])
    at_once = places(PlanDevices()(rules(Before)))
    again = places(PlanDevices()(rules(PlanDevices()(Before))))
    assert again == at_once


def test_a_value_without_operands_gets_the_hint_itself() -> None:
    @I.ir_module
    class Made:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main():
            with R.dataflow():
                a = R.zeros((4,), "float32")
                R.output(a)
            return a

    made = PlaceByPattern([(lambda call: op_name(call) == "relax.zeros", "llvm:1")])(Made)
    assert places(PlanDevices()(made))["a"] == 1


def test_two_targets_with_one_id_cannot_be_told_apart() -> None:
    devices = [tvm.relax.VDevice("llvm", 0), tvm.relax.VDevice({"kind": "llvm", "mcpu": "znver4"}, 0)]
    mod = IRModule(Before.functions, global_infos={"vdevice": devices})
    with pytest.raises(
        CollageError, match=r"a hint cannot tell llvm:1 from .* give one of the two another id"
    ):
        PlaceByPattern([(PRODUCT, "llvm:1")])(mod)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(CollageError, match="no device 'llvm:7'"):
        PlaceByPattern([(PRODUCT, "llvm:7")])(Before)
