"""What Prepare keeps of near misses: distinct, bounded, by names that are each that of one binding."""

from __future__ import annotations

import tvm
from prepare_checks import module, near_misses, plain
from test_near_misses import gelu
from test_prepare_arithmetic import const, function
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

from unity_collage.annotations import UNRECOGNISED
from unity_collage.passes.prepare import Prepare
from unity_collage.plan.unrecognised import Unrecognised
from unity_collage.rewrites import DEFAULT_REWRITES, Rewrite, WhyNot
from unity_collage.rewrites.gelu import GELU_FORM
from unity_collage.rewrites.near_misses import LIMIT
from unity_collage.rewrites.why_not import first_of


def test_a_reason_names_the_binding_that_stands():
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            scaled = R.divide(x, R.const(1.4142135))
            error = R.erf(scaled)
            more = R.add(error, R.const(1.0))
            product = R.multiply(x, more)
            y = R.multiply(product, R.const(0.4999))
            R.output(y)
        return y

    reason = "the factor behind erf is 0.4999, not 0.5"
    assert near_misses(func, *DEFAULT_REWRITES)[0] == Unrecognised(
        "gelu_form", "y", "relax.multiply", reason, 5
    )


def test_the_part_of_a_product_that_misses_is_not_said_twice():
    assert len(near_misses(function(lambda x: gelu(x, half=0.4999)), GELU_FORM)) == 1


def test_each_binding_has_a_name_of_its_own():
    """Variables that rules make are all called alike, so a number tells them apart."""
    wide = lambda x: op.add(op.power(op.exp(x), const(3)), op.power(op.tanh(x), const(3)))  # noqa: E731
    mod = Prepare()(module(function(wide)))
    names = [binding.var.name for block in mod["main"].body.blocks for binding in block.bindings]
    assert len(set(names)) == len(names)
    found = UNRECOGNISED.read(mod["main"])
    assert {miss.binding for miss in found} <= set(names) and len(found) == 2


def test_the_names_are_those_of_the_script():
    @R.function
    def func(x: R.Tensor((2, 3), "float32"), lv: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.add(x, lv)
            y = R.exp(a)
            R.output(y)
        return y

    renamed = Rewrite(
        "again", ("relax.add",), lambda call, _: op.subtract(op.tanh(call.args[0]), call.args[1])
    )
    mod = Prepare(rules=(renamed,))(module(func))
    assert [binding.var.name for binding in mod["main"].body.blocks[0].bindings] == ["lv_1", "a", "y"]
    assert "lv_1: R.Tensor" in mod.script()


def test_near_misses_survive_the_script():
    mod = Prepare()(module(function(lambda x: gelu(x, half=0.4999))))
    back = tvm.script.from_source(mod.script(show_meta=True))
    assert UNRECOGNISED.read(back["main"]) == UNRECOGNISED.read(mod["main"])
    tvm.ir.assert_structural_equal(plain(back), plain(mod))


def test_the_nearest_come_first_and_their_number_is_bounded():
    def make(x: relax.Expr) -> relax.Expr:
        total = gelu(x, half=0.4999)
        for exponent in range(3, LIMIT + 10):
            total = op.add(total, op.power(x, const(exponent)))
        return total

    found = near_misses(function(make), *DEFAULT_REWRITES)
    assert len(found) == LIMIT and found[0].rule == "gelu_form"


def test_a_second_run_replaces_what_the_first_has_said():
    once = Prepare()(module(function(lambda x: gelu(x, half=0.4999))))
    assert UNRECOGNISED.on(once["main"]) and not UNRECOGNISED.on(Prepare(rules=())(once)["main"])


def test_the_first_result_is_taken_else_the_nearest_miss():
    near, far = WhyNot("near", 3), WhyNot("far")
    assert first_of([far, None, 1, near]) == 1
    assert first_of([far, None, near]) == near and first_of([None, None]) is None
