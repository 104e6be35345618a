"""Operators that TVM cannot lower: one line with the operator and its operands."""

from __future__ import annotations

import pytest
from tvm import relax

from unity_collage.errors import CollageError
from unity_collage.legalization import legalize_ops


def test_operands_of_a_wrong_type_are_named() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "int32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.logical_not(x)))
    with pytest.raises(
        CollageError, match=r'relax.logical_not of R.Tensor\(\(4,\), dtype="int32"\): Expected boolean'
    ):
        legalize_ops()(builder.get())
