"""Sizes are learnt before the bindings that have them."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import IRModule

from unity_collage.lowering.sizes_first import with_sizes_first


def module(*order: str) -> IRModule:
    """Ones of a size that ``known`` learns from the input, and what is computed of them, in an order."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.ShapeType(ndim=1))
    known = relax.DataflowVar("known", relax.ShapeType([n]))
    ones = relax.DataflowVar("ones", relax.TensorType([n], "float32"))
    total = relax.Var("total", relax.TensorType([], "float32"))
    other = relax.Var("other", relax.TensorType([2], "float32"))
    normal = relax.BlockBuilder().normalize
    bindings = {
        "known": relax.MatchCast(known, x, known.ty),
        "ones": relax.VarBinding(ones, normal(relax.op.ones(relax.ShapeExpr([n]), "float32"))),
        "total": relax.VarBinding(total, normal(relax.op.sum(ones))),
        "other": relax.VarBinding(other, normal(relax.op.ones(relax.ShapeExpr([2]), "float32"))),
    }
    body = relax.SeqExpr([relax.DataflowBlock([bindings[name] for name in order])], total)
    return IRModule({"main": relax.Function([x], body, total.ty)})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("other ones total known", "other known ones total"),
        ("known other ones total", "known other ones total"),
        ("ones known total other", "known ones total other"),
    ],
)
def test_order(before: str, after: str) -> None:
    func = with_sizes_first(module(*before.split()))["main"]
    assert [binding.var.name for binding in func.body.blocks[0].bindings] == after.split()


def test_a_function_in_order_stays_as_it_is() -> None:
    mod = module("known", "ones", "total", "other")
    assert with_sizes_first(mod)["main"].same_as(mod["main"])


def test_a_size_that_is_stated_again_is_no_reason_to_wait() -> None:
    """The size is that of a parameter, and the kernel whose result is matched has it in its type."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n], "float32"))
    made = relax.DataflowVar("made", relax.TensorType([n], "float32"))
    again = relax.Var("again", relax.TensorType([n], "float32"))
    other = relax.Var("other", relax.TensorType([n], "float32"))
    normal = relax.BlockBuilder().normalize
    bindings = [
        relax.VarBinding(made, normal(relax.op.exp(x))),
        relax.MatchCast(again, made, again.ty),
        relax.VarBinding(other, normal(relax.op.exp(again))),
    ]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], other)
    mod = IRModule({"main": relax.Function([x], body, other.ty)})
    assert with_sizes_first(mod)["main"].same_as(mod["main"])


def test_bindings_that_wait_for_each_other_keep_their_order() -> None:
    """Nothing defines the size before the kernel whose result is matched: the build says so, and no order helps."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType(ndim=1, dtype="float32"))
    made = relax.DataflowVar("made", relax.TensorType([n], "float32"))
    again = relax.Var("again", relax.TensorType([n], "float32"))
    made_of = relax.Call(tvm.ir.Op.get("relax.exp"), [x])
    bindings = [relax.VarBinding(made, made_of), relax.MatchCast(again, made, again.ty)]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], again)
    found = with_sizes_first(IRModule({"main": relax.Function([x], body, again.ty)}))["main"]
    assert [binding.var.name for binding in found.body.blocks[0].bindings] == ["made", "again"]
