"""Questions about the nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from tvm import relax

from ...errors import ModelError
from .context import DTYPES, HALVES, CallRefused, Converter, Value, dtype_name, dtype_of
from .converters import CONVERTERS


def needed_for(results: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes that the results are computed from."""
    found: set[fx.Node] = set()
    left = list(results)
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left.extend(node.all_input_nodes)
    return found


def converter_of(node: fx.Node) -> tuple[str, Converter]:
    """The name of an operator, and its converter."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        name = str(target).removeprefix("aten.")
        if name in CONVERTERS:
            return name, CONVERTERS[name]
    raise CallRefused("there is no converter for it")


def bound(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """All arguments of the operator's schema in order, with their defaults."""
    assert isinstance(node.target, torch._ops.OpOverload)
    rest = node.target._schema.arguments[len(args) :]
    return [*args, *(kwargs.get(argument.name, argument.default_value) for argument in rest)]


def is_half(value: Value) -> bool:
    return (
        isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType) and dtype_of(value) in HALVES
    )


def checked_dtype(dtype: torch.dtype, name: str) -> str:
    found = dtype_name(dtype)
    if found not in DTYPES:
        raise ModelError(f"this model cannot be imported: its input {name} is {found}")
    return found


def failure(node: fx.Node, reason: str) -> ModelError:
    return ModelError(f"this model cannot be imported: {node.target} (node {node.name}): {reason}")
