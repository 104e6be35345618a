"""Casts to sizes that only data decide: the script of a module with them parses back to the same module."""

from __future__ import annotations

from tvm import relax, tirx
from tvm.ir import IRModule

from unity_collage.lowering.own_sizes import with_own_sizes
from unity_collage.rewrites.flat_casts import with_flat_casts
from unity_collage.testing.contract import why_no_round_trip


def learnt(name: str) -> IRModule:
    """``tanh`` of a tensor of unknown shape, whose rows are called ``name``."""
    builder, rows = relax.BlockBuilder(), tirx.Var(name, "int64")
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=2))
    with builder.function("main", [x]):
        y = builder.emit(relax.op.nn.relu(x))
        z = builder.match_cast(y, relax.TensorType([rows, 16], "float32"))
        builder.emit_func_output(builder.emit(relax.op.tanh(z)))
    return builder.get()


def test_a_nested_value_of_a_cast_gets_its_own_binding() -> None:
    main = learnt("rows")["main"]
    (block,) = main.body.blocks
    value, cast, *others = block.bindings
    nested = relax.BindingBlock([relax.MatchCast(cast.var, value.value, cast.ty), *others])
    body = relax.SeqExpr([nested], main.body.body)
    func = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    assert why_no_round_trip(IRModule({"main": func})) is not None
    flat = with_flat_casts(func)
    assert why_no_round_trip(IRModule({"main": flat})) is None
    assert with_flat_casts(flat).same_as(flat)


def test_kernels_have_names_of_their_own_for_sizes() -> None:
    cast = learnt("rows")
    legal = with_own_sizes(IRModule({"main": cast["main"], "kernel": kernel("rows")}))
    assert {param.shape[0].name for param in legal["kernel"].params} == {"kernel_rows"}
    assert why_no_round_trip(legal) is None
    other = IRModule({"main": cast["main"], "kernel": kernel("columns")})
    assert with_own_sizes(other)["kernel"].params[0].shape[0].name == "columns"


def kernel(name: str) -> tirx.PrimFunc:
    """A kernel of TVM for a tensor whose rows are called ``name``."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([tirx.Var(name, "int64"), 16], "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.tanh(x)))
    legal = relax.transform.LegalizeOps()(builder.get())
    return next(func for func in legal.functions.values() if isinstance(func, tirx.PrimFunc))
