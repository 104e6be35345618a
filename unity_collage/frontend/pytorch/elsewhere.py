"""Operators without a converter, or refused by it: calls of PyTorch itself, when the program runs.

Such a call is opaque: no pass looks into it, and no backend takes it. Its types are those of torch's fake tensors. A
complex tensor is a tensor of real numbers with one more axis of two elements, and all its readers are such calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree
from tvm import ir, relax, tirx

from ...errors import ModelError, first_line
from ...runtime import torch_calls
from ..opaque import Result, allocating_call, cast, parts_of
from .constants import Constants
from .context import DTYPES, CallRefused, Complex, Value, dtype_name
from .symbols import LearntSizes

_NAMED = (torch.dtype, torch.layout, torch.memory_format)
"""Types of arguments with values that have a name in ``torch``."""
_QUANTISED = (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4)
"""Types with a scale of their own. Torch's fake tensors say float32 in their place."""


@dataclass(slots=True)
class CalledOperators:
    """The calls of one model, as they are found."""

    builder: relax.BlockBuilder
    sizes: LearntSizes
    constants: Constants
    remarks: list[str] = field(default_factory=list[str])

    def call(self, node: fx.Node, given: Sequence[Value], reason: str) -> Value:
        """The results of a node with the arguments ``given``, in the structure that torch gives them.

        Raises CallRefused if PyTorch cannot be called for it; ``reason``: why it is not converted.
        """
        target = node.target
        assert isinstance(target, torch._ops.OpOverload)
        if (done := _without_call(str(target), given)) is not None:
            return done
        if refusal := _why_not(target):
            raise CallRefused(refusal)
        known = node.meta.get("val")
        leaves = [leaf for leaf in pytree.tree_leaves(known) if leaf is not None]
        results = [self._result(leaf) for leaf in leaves]
        if not results:
            raise CallRefused("it has no result")
        operands = _Operands(self.constants)
        template = [operands.encoded(value) for value in given]
        text = ir.StringImm(json.dumps({"arguments": template, "results": len(results)}))
        made = self.builder.emit(
            allocating_call(torch_calls.symbol_of(str(target)), [text, *operands.all()], results), node.name
        )
        torch_calls.register([str(target)])
        self.remarks.append(f"PyTorch computes {target} ({node.name}), on one thread: {reason}")
        parts = [
            self._part(part, result, leaf)
            for part, result, leaf in zip(parts_of(made, len(results)), results, leaves, strict=True)
        ]
        return _in_structure_of(known, iter(parts).__next__)

    def _result(self, leaf: Any) -> Result:
        if not isinstance(leaf, torch.Tensor):
            raise CallRefused("it returns a number that depends on the values of a tensor")
        dtype = leaf.dtype.to_real() if leaf.is_complex() else leaf.dtype
        if leaf.layout != torch.strided or dtype_name(dtype) not in DTYPES:
            raise CallRefused(f"it returns {dtype_name(leaf.dtype)} in the layout {leaf.layout}")
        dims = [self.sizes.met(size) for size in leaf.shape]
        return Result(dtype_name(dtype), [*dims, 2] if leaf.is_complex() else dims)

    def _part(self, part: relax.Expr, result: Result, leaf: torch.Tensor) -> Value:
        found = cast(self.builder, part, result, lambda: tirx.Var("size", "int64"))
        return Complex(found) if leaf.is_complex() else found


@dataclass(slots=True)
class _Operands:
    """The arguments of a call after the text: tensors, and then sizes that are not numbers."""

    constants: Constants
    _tensors: list[relax.Expr] = field(default_factory=list[relax.Expr])
    _sizes: list[Any] = field(default_factory=list[Any])

    def all(self) -> list[relax.Expr]:
        return [*self._tensors, *([relax.ShapeExpr(self._sizes)] if self._sizes else [])]

    def encoded(self, value: Value) -> Any:
        """An argument as JSON; :mod:`unity_collage.runtime.torch_calls` reads it. Raises CallRefused."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (list, tuple)):
            return [self.encoded(each) for each in value]
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, torch.device):
            return {"device": "cpu"}
        if isinstance(value, torch.dtype) and value in _QUANTISED:
            raise CallRefused("it makes a tensor of quantised numbers, which only PyTorch has")
        if isinstance(value, _NAMED):
            return {"torch": str(value).removeprefix("torch.")}
        if isinstance(value, torch.Tensor):
            is_complex = value.is_complex()
            real = torch.view_as_real(value.resolve_conj()) if is_complex else value
            return self._tensor(self.constants.of(real), is_complex)
        if isinstance(value, Complex):
            return self._tensor(value.pairs, True)
        if isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType):
            return self._tensor(value, False)
        if isinstance(value, relax.Expr) and isinstance(value.ty, ir.PrimType):
            self._sizes.append(value)
            return {"size": len(self._sizes) - 1}
        raise CallRefused(f"it has an argument of the type {type(value).__name__}")

    def _tensor(self, tensor: relax.Expr, is_complex: bool) -> Any:
        self._tensors.append(tensor)
        return {"complex tensor" if is_complex else "tensor": len(self._tensors) - 1}


def has_complex(given: Sequence[Value]) -> bool:
    """Whether complex numbers are among the arguments, which no converter takes."""
    return any(
        isinstance(leaf, (Complex, complex)) or (isinstance(leaf, torch.Tensor) and leaf.is_complex())
        for leaf in pytree.tree_leaves(given)
    )


def reason_of(error: Exception) -> str:
    """The reason in an error of a converter; the name of its type where it is a fault."""
    if isinstance(error, (CallRefused, ModelError)):
        return str(error).removeprefix("this model cannot be imported: ")
    return f"{type(error).__name__}: {first_line(error)}"


def _why_not(target: torch._ops.OpOverload) -> str | None:
    """Why an operator cannot be called, or None: equal calls have equal results, and change nothing."""
    if torch.Tag.nondeterministic_seeded in target.tags:
        return "its results are random"
    if target._schema.is_mutable:
        return "it changes its arguments"
    return None


def _without_call(name: str, given: Sequence[Value]) -> Value | None:
    """The result of an operator that does nothing to our form of a complex tensor."""
    if name == "aten.view_as_real.default" and isinstance(given[0], Complex):
        return given[0].pairs
    if name == "aten.view_as_complex.default" and isinstance(given[0], relax.Expr):
        return Complex(given[0])
    return None


def _in_structure_of(known: Any, take: Callable[[], Value]) -> Value:
    """Values in lists as torch returns them; None where it returns None."""
    if isinstance(known, (list, tuple)):
        return [_in_structure_of(each, take) for each in known]
    return None if known is None else take()
