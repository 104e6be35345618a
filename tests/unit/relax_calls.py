"""Small Relax functions and the calls in them, for tests of the lowerings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

Shape = tuple[int, ...]


def function(body: Callable[..., relax.Expr], *shapes: Shape, dtype: str = "float32") -> relax.Function:
    """``body`` of parameters of ``shapes``, its nested calls bound one by one."""
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    return builder.get()["main"]


def bindings(
    body: Callable[..., relax.Expr], *shapes: Shape, dtype: str = "float32"
) -> list[relax.VarBinding]:
    """The bindings of :func:`function`, in order."""
    return list(function(body, *shapes, dtype=dtype).body.blocks[0].bindings)


def call(body: Callable[..., relax.Expr], *shapes: Shape, dtype: str = "float32") -> relax.Call:
    """The last call of :func:`function`."""
    return bindings(body, *shapes, dtype=dtype)[-1].value


def constant(*shape: int) -> relax.Expr:
    return relax.const(np.arange(np.prod(shape), dtype="float32").reshape(shape))
