"""``where`` with numbers: TVM's own legalization makes tensors of them, which its fusion cannot take into a kernel."""

from __future__ import annotations

from tvm import ir, relax, te, tirx, topi

from .stock import Legalization


def _where(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    condition, *sides = call.args
    numbers = [_number(side) for side in sides]
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


def _number(value: relax.Expr) -> ir.Expr | None:
    """The number that a constant without axes holds."""
    if not isinstance(value, ir.GenericConst) or value.value.shape:
        return None
    array = value.value.numpy()
    return tirx.const(array.item(), str(array.dtype))


LEGALIZATIONS: dict[str, Legalization] = {"relax.where": _where}
