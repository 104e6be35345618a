"""Casts of floats to integers of 8 and 16 bits, and to uint32.

LLVM converts only numbers within the range of the integer. For others its scalars wrap around, and its vectors saturate
or give one number for all. In two steps all wrap around, as in numpy, PyTorch and ONNX Runtime, and NaN gives 0.
"""

from __future__ import annotations

from tvm import relax, te, topi

from .stock import Legalization, legalized_by_tvm

_THROUGH = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}
"""A wider type with a sign, whose last bits are the result."""


def _astype(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given, made = call.args[0].ty, call.ty
    if not isinstance(given, relax.TensorType) or not isinstance(made, relax.TensorType):
        return legalized_by_tvm(builder, call)
    dtype = str(made.dtype)
    if dtype not in _THROUGH or "float" not in str(given.dtype):
        return legalized_by_tvm(builder, call)

    def cast(data: te.Tensor) -> te.Tensor:
        return te.compute(
            data.shape,
            lambda *place: data(*place).astype(_THROUGH[dtype]).astype(dtype),
            name="cast",
            tag=topi.tag.ELEMWISE,
        )

    return builder.call_te(cast, call.args[0], primfunc_name_hint="cast")


LEGALIZATIONS: dict[str, Legalization] = {"relax.astype": _astype}
