"""Rules read backwards, but not past a change of memory in place, and keep the memory that is changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from prepare_checks import assert_stays, prepared
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.graph import DataflowGraph
from unity_collage.graph.in_place import changed_params, noted
from unity_collage.rewrites import DEFAULT_REWRITES

Make = Callable[[relax.BlockBuilder, relax.Expr, Callable[[relax.Expr], relax.Expr]], relax.Expr]


@I.ir_module
class Growing:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("grown"):
                vi = T.axis.remap("S", [i])
                x[vi] = x[vi] * T.float32(10)

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        return x


def growing(make: Make) -> IRModule:
    """A module with ``make(builder, x, grown)`` for its ``main``; ``grown`` changes its operand in place."""
    builder = relax.BlockBuilder(Growing.clone())
    x = relax.Var("x", relax.TensorType((8,), "float32"))
    kernel = Growing.get_global_var("grown")
    index = builder.get().get_global_var("main")

    def grown(value: relax.Expr) -> relax.Expr:
        return builder.emit(op.call_tir_inplace(kernel, (value,), [0], relax.TensorType((8,), "float32")))

    with builder.function("made", [x]):
        with builder.dataflow():
            y = builder.emit_output(make(builder, x, grown))
        builder.emit_func_output(y)
    mod = builder.get()
    made = mod["made"].with_attr("global_symbol", "main")
    return IRModule({kernel: mod[kernel], index: made})


def number(value: float) -> relax.Expr:
    return relax.const(value, "float32")


def product_before_and_behind(bb, x, grown):
    a = bb.emit(op.exp(x))
    b = bb.emit(op.multiply(a, number(2)))
    c = grown(a)
    return op.add(c, bb.emit(op.multiply(b, number(3))))


def change_of_a_copy(bb, x, grown):
    a = bb.emit(op.exp(x))
    b = bb.emit(op.add(a, number(0)))
    return op.add(grown(a), b)


def change_of_a_copied_parameter(bb, x, grown):
    return op.add(grown(bb.emit(op.multiply(x, number(1)))), x)


def permutation_of_changed_memory(bb, x, grown):
    a = bb.emit(op.exp(x))
    b = bb.emit(op.permute_dims(bb.emit(op.reshape(a, (8, 1))), [0, 1]))
    c = grown(a)
    return op.add(c, bb.emit(op.nn.softmax(b)))


def two_caches(bb, x, grown):
    k, v = (bb.emit(op.zeros((8,), "float32")) for _ in range(2))
    return op.add(bb.emit(op.add(grown(k), x)), grown(v))


def product_behind_a_view(bb, x, grown):
    a = bb.emit(op.exp(x))
    b = bb.emit(op.multiply(bb.emit(op.reshape(a, (2, 4))), number(2)))
    c = grown(a)
    return op.add(bb.emit(op.reshape(c, (2, 4))), bb.emit(op.multiply(b, number(3))))


@pytest.mark.parametrize(
    "make",
    [
        product_before_and_behind,
        change_of_a_copy,
        change_of_a_copied_parameter,
        permutation_of_changed_memory,
        two_caches,
        product_behind_a_view,
    ],
)
def test_values_are_computed_before_memory_changes(make: Make):
    assert_stays(growing(make), *DEFAULT_REWRITES)


def product_behind(bb, x, grown):
    b = bb.emit(op.multiply(grown(bb.emit(op.exp(x))), number(2)))
    return op.multiply(b, number(3))


def product_behind_in_one(bb, x, grown):
    return op.multiply(grown(bb.emit(op.exp(x))), number(6))


def equal_values_before(bb, x, grown):
    a = bb.emit(op.exp(x))
    b, c = bb.emit(op.tanh(a)), bb.emit(op.tanh(a))
    s = bb.emit(op.sin(c))
    return op.add(grown(a), bb.emit(op.maximum(b, s)))


def equal_values_before_once(bb, x, grown):
    a = bb.emit(op.exp(x))
    b = bb.emit(op.tanh(a))
    s = bb.emit(op.sin(b))
    return op.add(grown(a), bb.emit(op.maximum(b, s)))


def views_behind(bb, x, grown):
    c = bb.emit(op.reshape(grown(bb.emit(op.exp(x))), (2, 4)))
    return op.tanh(bb.emit(op.reshape(c, (4, 2))))


def one_view_behind(bb, x, grown):
    return op.tanh(bb.emit(op.reshape(grown(bb.emit(op.exp(x))), (4, 2))))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (product_behind, product_behind_in_one),
        (equal_values_before, equal_values_before_once),
        (views_behind, one_view_behind),
    ],
)
def test_rules_apply_between_the_changes(before: Make, after: Make):
    tvm.ir.assert_structural_equal(prepared(growing(before), *DEFAULT_REWRITES), growing(after))


@I.ir_module
class ChangedInABranch:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("grown"):
                vi = T.axis.remap("S", [i])
                x[vi] = x[vi] + T.float32(10)

    @R.function
    def main(x: R.Tensor((8,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((8,), "float32"):
        cls = ChangedInABranch
        with R.dataflow():
            k = R.zeros((8,), "float32")
            R.output(k)
        if c:
            a = R.call_tir_inplace(cls.grown, (k,), inplace_indices=[0], out_ty=R.Tensor((8,), "float32"))
            y = R.add(a, x)
        else:
            b = R.exp(x)
            y = R.add(b, x)
        return y


@I.ir_module
class ChangedByAFunction:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("grown"):
                vi = T.axis.remap("S", [i])
                x[vi] = x[vi] + T.float32(10)

    @R.function(private=True)
    def step(k: R.Tensor((8,), "float32"), x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        cls = ChangedByAFunction
        a = R.call_tir_inplace(cls.grown, (k,), inplace_indices=[0], out_ty=R.Tensor((8,), "float32"))
        return R.add(a, x)

    @R.function(private=True)
    def layer(x: R.Tensor((8,), "float32"), k: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        cls = ChangedByAFunction
        return cls.step(k, x)

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        cls = ChangedByAFunction
        k = R.zeros((8,), "float32")
        return cls.layer(x, k)


@pytest.mark.parametrize("mod", [ChangedInABranch, ChangedByAFunction])
def test_memory_that_a_branch_or_a_function_changes_is_no_constant(mod: IRModule):
    assert "R.zeros" in prepared(mod, *DEFAULT_REWRITES)["main"].script()


def test_a_branch_that_changes_memory_of_its_function_stays():
    made = prepared(ChangedInABranch, *DEFAULT_REWRITES)
    assert {gvar.name_hint for gvar in made.get_global_vars()} == {"grown", "main", "main_y_else"}


def test_functions_change_what_the_functions_that_they_call_change():
    found = changed_params(ChangedByAFunction["main"], ChangedByAFunction)
    assert found == {"step": (0,), "layer": (1,)}
    assert noted(prepared(ChangedByAFunction)["main"]) == found


@I.ir_module
class ReadBeforeACall:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("grown"):
                vi = T.axis.remap("S", [i])
                x[vi] = x[vi] + T.float32(10)

    @R.function(private=True)
    def step(k: R.Tensor((8,), "float32"), x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        cls = ReadBeforeACall
        a = R.call_tir_inplace(cls.grown, (k,), inplace_indices=[0], out_ty=R.Tensor((8,), "float32"))
        return R.add(a, x)

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        cls = ReadBeforeACall
        k = R.exp(x)
        r = R.tanh(k)
        d = R.nn.softmax(x)
        e = R.nn.softmax(d)
        y = cls.step(k, e)
        return R.multiply(y, r)


def test_the_graph_reads_memory_before_a_called_function_changes_it():
    graph = DataflowGraph(prepared(ReadBeforeACall)["main"])
    (reader,) = (node for node in graph.nodes if node.op == "relax.tanh")
    (call,) = (node for node in graph.nodes if node.op == "call:step")
    assert reader.index in call.inputs and reader.changed_by == "y"
