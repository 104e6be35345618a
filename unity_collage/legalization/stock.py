"""TVM's own legalizations."""

from __future__ import annotations

from collections.abc import Callable

from tvm import ir, relax

Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def legalized_by_tvm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's legalization of a call of an operator."""
    assert isinstance(call.op, ir.Op)
    return call.op.get_attr("FLegalize")(builder, call)
