"""Normalisation over all axes, which TVM's own legalization cannot index."""

from __future__ import annotations

from tvm import relax, te, topi

from .stock import Legalization, legalized_by_tvm


def _rms_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Like TVM's legalization, which fails if all axes are in one row: it indexes the mean square of each row."""
    kind, axes = call.args[0].ty, [int(axis) for axis in call.attrs.axes]
    assert isinstance(kind, relax.TensorType)
    rank = kind.ndim
    if len(axes) < rank:
        return legalized_by_tvm(builder, call)

    def one_row(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        row = topi.expand_dims(data, 0)
        made = topi.nn.rms_norm(row, weight, [axis % rank + 1 for axis in axes], call.attrs.epsilon)
        return topi.squeeze(made, [0])

    return builder.call_te(one_row, *call.args)


LEGALIZATIONS: dict[str, Legalization] = {"relax.nn.rms_norm": _rms_norm}
