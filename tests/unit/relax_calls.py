"""Small Relax functions and the calls in them, for tests of the lowerings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

Shape = Any
"""A tuple of ints; TVM wants expressions."""

op: Any = relax.op
nn: Any = relax.op.nn
"""TVM annotates its operators more narrowly than they are."""


def function(body: Callable[..., relax.Expr], *shapes: Shape, dtype: str = "float32") -> relax.Function:
    """``body`` of parameters of ``shapes``, its nested calls bound one by one."""
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    return builder.get()["main"]


def bindings(body: Callable[..., relax.Expr], *shapes: Shape, dtype: str = "float32") -> list[Any]:
    """The bindings of :func:`function`, in order."""
    body_of: Any = function(body, *shapes, dtype=dtype).body
    return list(body_of.blocks[0].bindings)


def call(body: Callable[..., relax.Expr], *shapes: Shape, dtype: str = "float32") -> Any:
    """The last call of :func:`function`."""
    return bindings(body, *shapes, dtype=dtype)[-1].value


def bound(expr: relax.Expr) -> Any:
    """The variable that holds ``expr``, inside a body."""
    builder: Any = relax.BlockBuilder.current()
    return builder.emit(expr)


def constant(*shape: int) -> relax.Expr:
    return relax.const(np.arange(np.prod(shape), dtype="float32").reshape(shape))
