"""TVM's own legalizations."""

from __future__ import annotations

from collections.abc import Callable

from tvm import ir, relax

from ..errors import CollageError, first_line

Legalization = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def legalized_by_tvm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's legalization of a call of an operator; raises CollageError where it fails, as for wrong types."""
    assert isinstance(call.op, ir.Op)
    try:
        return call.op.get_attr("FLegalize")(builder, call)
    except CollageError:
        raise
    except Exception as error:  # TVM raises errors of many kinds
        operands = ", ".join(str(arg.ty) for arg in call.args)
        raise CollageError(
            f"TVM makes no kernel of {call.op.name} of {operands}: {first_line(error)}"
        ) from error
