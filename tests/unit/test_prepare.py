"""Prepare as a pass: which functions it works on, what it leaves, and that it terminates."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tvm
from prepare_checks import assert_becomes, assert_stays, module, prepared, values
from test_prepare_arithmetic import const, function
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.passes.prepare import Prepare, why_left_alone
from unity_collage.rewrites import DEFAULT_REWRITES, Rewrite, RewriteError
from unity_collage.rewrites.driver import why_not_rewritable
from unity_collage.testing import graphs


@R.function
def twice_relu(x: R.Tensor((2, 3), "float32"), w: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        a = R.add(x, w)
        y = R.nn.relu(a)
        R.output(y)
    return y


def test_it_is_a_pass_with_a_name_and_fields():
    assert Prepare().info.name == "collage.Prepare"
    assert Prepare().rules == DEFAULT_REWRITES and Prepare().params == {}


def test_every_rule_has_a_name_of_its_own():
    assert len({rule.name for rule in DEFAULT_REWRITES}) == len(DEFAULT_REWRITES)


def test_parameters_are_bound_and_folded():
    mod = Prepare(params={"w": values(2, 3)})(module(twice_relu))
    assert [param.name for param in mod["main"].params] == ["x"]

    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.add(x, R.const(values(2, 3)))
            y = R.nn.relu(a)
            R.output(y)
        return y

    tvm.ir.assert_structural_equal(mod, module(after))


def test_the_input_is_not_edited():
    mod = module(function(lambda x: op.subtract(x, const(1.5))))
    kept = copy.deepcopy(mod)
    Prepare()(mod)
    tvm.ir.assert_structural_equal(mod, kept)


@pytest.mark.parametrize("name", sorted(graphs.GRAPHS))
def test_a_second_run_changes_nothing(name):
    once = Prepare()(module(graphs.GRAPHS[name]()))
    tvm.ir.assert_structural_equal(Prepare()(once), once)


def test_bindings_outside_dataflow_blocks_are_moved_into_one():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        a = R.nn.relu(x)
        return R.exp(a)

    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            y = R.exp(a)
            R.output(y)
        return y

    assert_becomes(before, after)


def test_equal_values_are_computed_once():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.nn.relu(x)
            c = R.add(a, R.const(2.0))
            d = R.add(b, R.const(2.0))
            y = R.multiply(c, d)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            c = R.add(a, R.const(2.0))
            y = R.multiply(c, c)
            R.output(y)
        return y

    assert_becomes(before, after)


def test_nearly_equal_values_are_not():
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.sum(x, axis=[0], keepdims=True)
            b = R.sum(x, axis=[1], keepdims=True)
            c = R.add(x, R.const(2.0))
            d = R.add(x, R.const(2.5))
            e = R.add(a, b)
            f = R.multiply(c, d)
            y = R.add(e, f)
            R.output(y)
        return y

    assert_stays(func)


def test_dead_bindings_go():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.exp(x)
            _b = R.add(a, a)
            y = R.nn.relu(x)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    assert_becomes(before, after)


@I.ir_module
class Mixed:
    """Finished functions, a PrimFunc, control flow, a side effect and a helper in one module."""

    @T.prim_func(private=True, s_tir=True)
    def unused(a: T.Buffer((T.int64(2),), "float32"), b: T.Buffer((T.int64(2),), "float32")):
        for i in range(T.int64(2)):
            with T.sblock("copy"):
                v = T.axis.spatial(T.int64(2), i)
                b[v] = a[v]

    @R.function(private=True)
    def grouped(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        R.func_attr({"Primitive": True})
        with R.dataflow():
            a = R.reshape(x, R.shape([2, 3]))
            y = R.subtract(a, R.const(1.0))
            R.output(y)
        return y

    @R.function(private=True)
    def external(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        R.func_attr({"Codegen": "somebody"})
        return R.subtract(x, R.const(1.0))

    @R.function(private=True)
    def helper(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return R.subtract(x, R.const(1.0))

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2, 3), "float32"):
        cls = Mixed
        a = cls.helper(x)
        b = R.reshape(a, R.shape([2, 3]))
        if c:
            d = cls.grouped(b)
            e = R.nn.relu(d)
        else:
            e = cls.external(b)
        return R.subtract(e, R.const(2.0))

    @R.function(pure=False)
    def speaks(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        a = R.reshape(x, R.shape([2, 3]))
        _ = R.print(a, format="{}")
        return R.subtract(a, R.const(1.0))


def test_finished_functions_and_prim_funcs_are_left_alone():
    after = Prepare()(Mixed)
    names = {gvar.name_hint for gvar in after.get_global_vars()} - {
        g.name_hint for g in Mixed.get_global_vars()
    }
    assert all(name.endswith(("_then", "_else")) for name in names), "branches become functions"
    for name in ("unused", "grouped", "external"):
        tvm.ir.assert_structural_equal(after[name], Mixed[name])
        assert why_left_alone(Mixed[name]) is not None
    assert "R.subtract" not in after["helper"].script()


def test_control_flow_and_side_effects_come_through():
    after = Prepare()(Mixed)
    main, speaks = after["main"].script(), after["speaks"].script()
    assert "if c" in main and "reshape" not in main and "subtract" not in main
    assert "R.print(x" in speaks and "R.add" in speaks


def test_the_rest_of_the_module_is_kept():
    mod = Mixed.with_attr("note", "kept")
    after = Prepare()(mod)
    assert after.attrs["note"] == "kept"


def test_blocks_that_are_passed_over_have_a_reason():
    blocks = Mixed["speaks"].body.blocks
    assert "not a dataflow block" in str(why_not_rewritable(blocks[0]))
    assert why_not_rewritable(relax.DataflowBlock([])) is None


def test_a_result_with_a_better_known_type_is_renamed_everywhere():
    @R.function
    def before(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(ndim=1, dtype="float32"):
        s = R.tensor_to_shape(R.const(np.int64([6])))
        a = R.reshape(x, s)
        if c:
            b = R.nn.relu(a)
            y = R.exp(b)
        else:
            y = R.exp(a)
        return y

    text = Prepare()(module(before)).script()
    assert "tensor_to_shape" not in text and 'R.Tensor((6,), dtype="float32") = R.nn.relu' in text


def test_several_outputs_and_tuples_keep_their_places():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.reshape(x, R.shape([2, 3]))
            b = R.nn.relu(a)
            c = R.nn.relu(x)
            pair = (b, a)
            R.output(c, pair)
        return (c, pair)

    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.nn.relu(x)
            pair = (b, x)
            R.output(b, pair)
        return (b, pair)

    assert_becomes(before, after, *DEFAULT_REWRITES)


BACK_AND_FORTH = (
    Rewrite("to_exp", ("relax.tanh",), lambda call, _: op.exp(call.args[0])),
    Rewrite("to_tanh", ("relax.exp",), lambda call, _: op.tanh(call.args[0])),
)


def test_rules_that_undo_each_other_are_named():
    with pytest.raises(RewriteError, match=r"do not terminate.*to_exp.*to_tanh"):
        prepared(function(op.tanh), *BACK_AND_FORTH)


def test_a_rule_that_grows_without_end_is_named():
    grow = Rewrite("grow", ("relax.tanh",), lambda call, _: op.tanh(op.exp(call.args[0])))
    with pytest.raises(RewriteError, match=r"do not terminate.*grow"):
        prepared(function(op.tanh), grow)


def test_a_rule_that_changes_a_type_is_named():
    wrong = Rewrite("wrong", ("relax.tanh",), lambda call, _: op.sum(call.args[0]))
    with pytest.raises(RewriteError, match="wrong turned a value of type"):
        prepared(function(op.tanh), wrong)


def test_a_result_of_symbolic_shape_may_be_the_input():
    @R.function
    def before(x: R.Tensor(("n", "m"), "float32")):
        with R.dataflow():
            y = R.add(x, R.const(0.0))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor(("n", "m"), "float32")):
        return x

    assert_becomes(before, after, *DEFAULT_REWRITES)
