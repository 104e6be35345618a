"""What a program says about its inputs and results, and which results share memory."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.script import relax as R

from unity_collage.calling.describe import signature_of
from unity_collage.calling.sharing import shared_results
from unity_collage.calling.signature import OtherSpec, Signature, TensorSpec, TupleSpec, shown

Body = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


def module(body: Body, shape: tuple = (4, 1)) -> IRModule:
    """``main`` of one tensor ``x``."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def test_names_types_and_symbolic_shapes_are_those_of_the_model() -> None:
    n, other = tirx.Var("n", "int64"), tirx.Var("n", "int64")
    x, y = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", [n, 4]), ("y", [n + 1, other]))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        builder.emit_func_output(relax.Tuple([builder.emit(R.exp(x)), builder.emit(R.exp(y))]))
    mod = builder.get()
    signature = signature_of(mod, mod, ["in/0", "in 1"], ["a", "b"])
    assert signature.inputs == (
        TensorSpec("in/0", "float32", ("n", 4)),
        TensorSpec("in 1", "float32", ("(n + 1)", "n'")),
    )
    assert str(signature) == (
        "'in/0': float32 (n, 4), 'in 1': float32 ((n + 1), n') -> 'a': float32 (n, 4), 'b': float32 ((n + 1), n')"
    )
    unnamed = signature_of(mod, mod, None, None)
    assert [spec.name for spec in (*unnamed.inputs, *unnamed.results)] == ["x", "y", "0", "1"]


def test_what_is_not_a_tensor_of_known_shape_is_described_too() -> None:
    params = [
        relax.Var("rank", relax.TensorType(dtype="int64", ndim=2)),
        relax.Var("any", relax.TensorType(dtype="int64", ndim=-1)),
        relax.Var("pair", relax.TupleType([relax.TensorType((1,), "bool"), relax.ShapeType(ndim=2)])),
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(params[0])
    mod = builder.get()
    inputs = signature_of(mod, mod, None, None).inputs
    assert inputs == (
        TensorSpec("rank", "int64", (None, None)),
        TensorSpec("any", "int64", None),
        TupleSpec("pair", (TensorSpec("pair[0]", "bool", (1,)), OtherSpec("pair[1]", "R.Shape(ndim=2)"))),
    )
    assert [str(spec) for spec in inputs] == [
        "int64 (?, ?)",
        "int64 of any rank",
        "(bool (1,), R.Shape(ndim=2))",
    ]


def test_a_signature_is_plain_data() -> None:
    fields = (TensorSpec("t[0]", "bool", (1, "n", None)), OtherSpec("t[1]", "R.Object"))
    signature = Signature((TupleSpec("вход \n", fields), TensorSpec("b", "int8", None)), (), (0, 2))
    assert Signature.from_json(json.loads(json.dumps(signature.to_json()))) == signature
    assert len(str(signature).splitlines()) == 1
    assert len(shown("a" * 10_000)) < 80


def both(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    y = builder.emit(R.exp(x))
    return relax.Tuple([y, builder.emit(R.reshape(y, (1, 4))), builder.emit(R.exp(y))])


def halves(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    parts = builder.emit(R.split(x, 2))
    return relax.Tuple(
        [relax.TupleGetItem(parts, 0), relax.TupleGetItem(parts, 1), relax.TupleGetItem(parts, 0)]
    )


@pytest.mark.parametrize(
    ("body", "shared"),
    [
        (lambda b, x: R.exp(x), ()),
        (lambda b, x: R.exp(R.reshape(x, (1, 4))), ()),
        (lambda b, x: x, (0,)),
        (lambda b, x: R.reshape(x, (1, 4)), (0,)),
        (lambda b, x: R.squeeze(b.emit(R.expand_dims(x, 0)), 0), (0,)),
        (lambda b, x: relax.Tuple([b.emit(R.exp(x)), relax.const(1.0)]), (1,)),
        (lambda b, x: relax.Tuple([b.emit(R.exp(b.emit(R.exp(relax.const(1.0))))), b.emit(R.exp(x))]), (0,)),
        (lambda b, x: relax.op.memory.ensure_zero_offset(x), (0,)),
        (lambda b, x: relax.op.builtin.stop_lift_params(x), (0,)),
        (lambda b, x: R.call_inplace_packed("double", x, inplace_indices=[0], ty_args=x.ty), (0,)),
        (both, (1,)),
        (halves, (2,)),
    ],
    ids=[
        "new",
        "a view inside",
        "the input",
        "a view",
        "views of views",
        "a constant",
        "computed of a constant",
        "without an offset",
        "kept apart",
        "changed in place",
        "a view of a result",
        "parts",
    ],
)
def test_results_share_memory_with_inputs_constants_and_each_other(
    body: Body, shared: tuple[int, ...]
) -> None:
    assert shared_results(module(body)) == shared


def test_kernels_that_only_reshape_may_be_views() -> None:
    legal = relax.transform.LegalizeOps()(module(both))
    assert legal["main"].body.blocks[0].bindings[1].value.op == tvm.ir.Op.get("relax.call_tir")
    assert shared_results(legal) == (1,)


def test_a_branch_may_return_what_it_was_given() -> None:
    condition = relax.Var("c", relax.TensorType((), "bool"))
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [condition, x]):
        new = builder.emit(R.exp(x))
        old = builder.emit(relax.If(condition, relax.SeqExpr([], new), relax.SeqExpr([], x)))
        builder.emit_func_output(relax.Tuple([old, new]))
    assert shared_results(builder.get()) == (0, 1)


@pytest.mark.parametrize(
    ("then", "otherwise", "shared"),
    [((0, 0), (0, 1), (1,)), ((0, 1), (1, 0), (1,)), ((0, 0), (0, 0), (1,))],
    ids=["one value twice", "exchanged", "always one value"],
)
def test_branches_may_return_one_value_twice(
    then: tuple[int, int], otherwise: tuple[int, int], shared: tuple[int, ...]
) -> None:
    condition = relax.Var("c", relax.TensorType((), "bool"))
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [condition, x]):
        made = [builder.emit(R.exp(x)), builder.emit(R.log(x))]
        branches = [relax.SeqExpr([], relax.Tuple([made[i] for i in each])) for each in (then, otherwise)]
        builder.emit_func_output(builder.emit(relax.If(condition, *branches)))
    assert shared_results(builder.get()) == shared


def test_a_field_of_a_branch_may_be_another_result() -> None:
    condition = relax.Var("c", relax.TensorType((), "bool"))
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [condition, x]):
        one, two = builder.emit(R.exp(x)), builder.emit(R.log(x))
        branches = [relax.SeqExpr([], relax.Tuple(pair)) for pair in ([one, two], [two, one])]
        both = builder.emit(relax.If(condition, *branches))
        builder.emit_func_output(relax.Tuple([one, builder.emit(relax.TupleGetItem(both, 0))]))
    assert shared_results(builder.get()) == (1,)


def test_an_unknown_function_may_return_memory_of_what_it_is_given() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    cache = relax.Var("cache", relax.ObjectType())
    builder = relax.BlockBuilder()
    with builder.function("main", [x, cache]):
        new = builder.emit(R.exp(x))
        pair = builder.emit(R.call_pure_packed("two", new, ty_args=relax.TupleType([x.ty, x.ty])))
        kept = builder.emit(R.call_pure_packed("view", cache, ty_args=x.ty))
        parts = [relax.TupleGetItem(pair, number) for number in range(2)]
        builder.emit_func_output(relax.Tuple([new, kept, *map(builder.emit, parts)]))
    assert shared_results(builder.get()) == (1, 2, 3)
