"""Numbers in ``where`` and ``full``, and negative unsigned numbers.

TVM's own legalization of ``where`` makes tensors of them, which its fusion cannot take into a kernel, and that of
``full`` fails on infinities. That of ``negative`` multiplies by -1, which unsigned integers do not have.
"""

from __future__ import annotations

from tvm import ir, relax, te, tirx, topi

from .stock import Legalization, legalized_by_tvm


def _where(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    condition, *sides = call.args
    numbers = [number_in(side) for side in sides]
    tensors = [side for side, number in zip(sides, numbers, strict=True) if number is None]
    if len(tensors) == 2:
        return builder.call_te(topi.where, *call.args)

    def where(condition: te.Tensor, *given: te.Tensor) -> te.Tensor:
        left = iter(given)
        like = given[0] if given else condition

        def full(number: ir.Expr | None) -> te.Tensor:
            return (
                next(left) if number is None else topi.full(like.shape, str(number.expr_ty().dtype), number)
            )

        return topi.where(condition, *map(full, numbers))

    return builder.call_te(where, condition, *tensors)


def _full(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    shape, number = call.args[0], number_in(call.args[1])
    kind = call.ty
    if number is None or not isinstance(shape, relax.ShapeExpr) or not isinstance(kind, relax.TensorType):
        return legalized_by_tvm(builder, call)
    dtype = str(kind.dtype)
    value = tirx.Cast(dtype, number)
    return builder.call_te(lambda: topi.full(shape.values, dtype, value), primfunc_name_hint="full")


def number_in(value: relax.Expr) -> ir.Expr | None:
    """The number that a constant without axes holds."""
    if not isinstance(value, ir.GenericConst) or value.value.shape:
        return None
    array = value.value.numpy()
    return tirx.const(array.item(), str(array.dtype))


def _negative(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """0 - x, modulo the range of an unsigned type."""
    kind = call.ty
    if not isinstance(kind, relax.TensorType) or not str(kind.dtype).startswith("uint"):
        return legalized_by_tvm(builder, call)

    def negative(data: te.Tensor) -> te.Tensor:
        zero = tirx.const(0, data.dtype)
        return te.compute(data.shape, lambda *at: zero - data(*at), name="negative", tag=topi.tag.ELEMWISE)

    return builder.call_te(negative, call.args[0])


LEGALIZATIONS: dict[str, Legalization] = {
    "relax.full": _full,
    "relax.negative": _negative,
    "relax.where": _where,
}
