"""Values that are known before the program runs: weights, and values computed only from them."""

from __future__ import annotations

from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree
from tvm import ir, relax

from .context import CallRefused, Complex, dtype_name

_LARGEST = 1 << 22
"""The most elements of a constant that is computed here, unless it is at most as large as its operands."""


class Constants:
    """The Relax constants of torch's tensors; tied weights are one constant."""

    def __init__(self) -> None:
        self._made: dict[Any, ir.GenericConst] = {}
        self._kept: list[torch.Tensor] = []  # kept alive, so that no other tensor gets the same address
        self._transposed: dict[ir.GenericConst, ir.GenericConst] = {}

    def of(self, tensor: torch.Tensor) -> ir.GenericConst:
        """The constant with the values of ``tensor``; raises CallRefused if Relax has no such type."""
        if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
            raise CallRefused(f"a constant is {dtype_name(tensor.dtype)} in the layout {tensor.layout}")
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.is_neg())
        if key not in self._made or tensor.numel() == 0:
            self._kept.append(tensor)
            self._made[key] = _constant(tensor.detach().cpu().resolve_conj().resolve_neg().contiguous())
        return self._made[key]

    def transposed(self, matrix: ir.GenericConst) -> ir.GenericConst:
        """The transposed matrix as a constant of its own; unless the other one is read too, the module lacks it."""
        if matrix not in self._transposed:
            values = matrix.value.numpy()
            self._transposed[matrix] = relax.const(np.ascontiguousarray(values.T), str(matrix.value.dtype))
        return self._transposed[matrix]


def _constant(tensor: torch.Tensor) -> ir.GenericConst:
    if tensor.dtype is torch.bfloat16:  # numpy has no such type of its own
        return relax.const(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16), "bfloat16")
    return relax.const(tensor.numpy(), dtype_name(tensor.dtype))


def is_constant(value: Any) -> bool:
    """Whether nothing in ``value`` is known only when the program runs."""
    return not any(
        isinstance(leaf, (relax.Expr, fx.GraphModule, Complex)) for leaf in pytree.tree_leaves(value)
    )


def why_not_computed(node: fx.Node) -> str | None:
    """Why a node of constants is not computed here, or None when it can be."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return (
            None if type(target).__name__ == "builtin_function_or_method" else f"{target} is not an operator"
        )
    if target.namespace == "quantized_decomposed" and "dequantize" in target.name():
        return "weights stay bytes"
    if torch.Tag.nondeterministic_seeded in target.tags:
        return "its results are random"
    found = [leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
    given = [arg.meta["val"] for arg in node.all_input_nodes if isinstance(arg.meta.get("val"), torch.Tensor)]
    largest = max([_LARGEST, *(_elements(tensor) for tensor in given)])
    if any(_elements(tensor) > largest for tensor in found):
        return "its result is large"
    return None


def _elements(tensor: torch.Tensor) -> int:
    """The number of elements; a size that depends on values counts as one."""
    return prod(size if isinstance(size, int) else 1 for size in tensor.shape)
