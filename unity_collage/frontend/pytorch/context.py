"""The argument of a converter: the builder of the function, and what torch knows about the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx
from tvm import ir, relax, tirx
from tvm.relax import op
from tvm_ffi import structural_equal

from .symbols import LearntSizes, Size

if TYPE_CHECKING:
    from .constants import Constants

Value = Any
"""An argument of an operator: an expression of Relax, a number, a size, a list of them, or None."""

Converter = Callable[..., Value]
"""``(context, *arguments)``: the arguments are all those of the operator's schema, in order, with their defaults."""

Converters = Mapping[str, Converter]
"""Converters by operator and overload, such as ``add.Tensor``."""

HALVES = ("float16", "bfloat16")

DTYPES = frozenset((*HALVES, "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"))
"""The types of tensors that a program may have."""


class CallRefused(Exception):
    """An operator has options that are not supported; the text says which."""


@dataclass(frozen=True, slots=True)
class Complex:
    """A tensor of complex numbers, which Relax does not have."""

    pairs: relax.Expr
    """Real and imaginary parts, along a last axis that torch's tensor does not have."""


@dataclass(frozen=True, slots=True)
class Context:
    """One node of the graph, and the function that is being built."""

    builder: relax.BlockBuilder
    node: fx.Node
    sizes: LearntSizes
    is_widened: bool
    """Whether numbers of 16 bits are computed with in float32, as torch does inside an operator."""
    constants: Constants

    def emit(self, expr: relax.Expr) -> Any:
        """``expr`` as a variable, so that its type is known."""
        return expr if isinstance(expr, (ir.GenericConst, relax.Var)) else self.builder.emit(expr)

    @property
    def result(self) -> torch.Tensor:
        """The shape and dtype of the result, as torch knows them."""
        found = self.node.meta["val"]
        return found if isinstance(found, torch.Tensor) else found[0]

    @property
    def dtype(self) -> str:
        """The dtype of the result, or that in which it is computed."""
        return self.widened(dtype_name(self.result.dtype))

    @property
    def shape(self) -> list[Size]:
        """The shape of the result."""
        return self.sizes.shape(self.result)

    def widened(self, dtype: str) -> str:
        return "float32" if self.is_widened and dtype in HALVES else dtype

    def cast(self, value: Value, dtype: str | None = None) -> relax.Expr:
        """A tensor, number or size in ``dtype``, by default that of the result."""
        wanted = dtype or self.dtype
        if isinstance(value, (bool, int, float)):
            return relax.const(np.array(value).astype(_numpy(wanted)), wanted)
        if not isinstance(value, ir.Expr):
            raise CallRefused("an operand of arithmetic on tensors is neither a tensor nor a number")
        if not isinstance(value.ty, relax.TensorType):  # a size that is known when the program runs
            size = self.emit(op.shape_to_tensor(relax.ShapeExpr([value])))
            value = self.emit(op.reshape(size, []))
        return value if dtype_of(value) == wanted else self.emit(op.astype(value, wanted))

    def filled(self, shape: Sequence[Size], value: Value) -> relax.Expr:
        """A tensor of one number in the dtype of the result; Relax's ``full`` takes finite numbers only."""
        number = self.cast(value)
        if isinstance(value, float) and not isfinite(value):
            return op.broadcast_to(number, list(shape))
        return op.full(list(shape), number, self.dtype)

    def promoted(self, *values: Value) -> list[relax.Expr]:
        """The operands in their common dtype, by torch's rules; they are the first arguments of the node.

        What is widened was rounded to the common dtype before: 0.1 is another number in float16.
        """
        given = [self.known(position) for position in range(len(values))]
        given = [1 if isinstance(each, torch.SymInt) else each for each in given]
        common = torch.result_type(*given)
        is_common = [isinstance(each, torch.Tensor) and each.dtype == common for each in given]
        rounded = [
            value if has_it else self.cast(value, dtype_name(common))
            for value, has_it in zip(values, is_common, strict=True)
        ]
        return [self.cast(value, self.widened(dtype_name(common))) for value in rounded]

    def known(self, position: int) -> Any:
        """What torch knows about an argument of the node: a tensor without values, or its number."""
        arg = self.node.args[position]
        return arg.meta["val"] if isinstance(arg, fx.Node) else arg


def _numpy(dtype: str) -> np.dtype[Any]:
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype, which torch and TVM share."""
    return str(dtype).removeprefix("torch.")


def _tensor_type(value: relax.Expr) -> Any:
    if not isinstance(value.ty, relax.TensorType) or value.ty.shape is None:
        raise CallRefused("it is given something else than a tensor of known rank")
    return value.ty


def dtype_of(value: relax.Expr) -> str:
    """The dtype of a tensor."""
    return str(_tensor_type(value).dtype.dtype)


def shape_of(value: relax.Expr) -> list[Size]:
    """The shape of a tensor, with ints where it is known."""
    return [
        size.value if isinstance(size, tirx.IntImm) else size for size in _tensor_type(value).shape.values
    ]


def are_equal(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two shapes are known to be the same."""
    return len(a) == len(b) and all(
        (type(one) is type(other) and one == other)
        if isinstance(one, int) or isinstance(other, int)
        else structural_equal(one, other)
        for one, other in zip(a, b, strict=True)
    )


def rank_of(value: relax.Expr) -> int:
    """The number of axes of a tensor."""
    return len(shape_of(value))


def positive(axis: int, rank: int) -> int:
    """An axis counted from the front; a tensor without axes has the axis 0 to torch."""
    return axis % max(rank, 1)


def axes_of(dims: Sequence[int] | int | None, rank: int) -> list[int]:
    """The axes of a reduction, in order: none given means all; a tensor without axes has none, whatever is given."""
    if not rank or dims is None or (not isinstance(dims, int) and not dims):
        return list(range(rank))
    return sorted(positive(dim, rank) for dim in ([dims] if isinstance(dims, int) else dims))


def known_size(size: Size, what: str) -> int:
    """``size`` as an int; raises CallRefused where it is a variable."""
    if not isinstance(size, int):
        raise CallRefused(f"{what} is not known")
    return size


def reshaped(cx: Context, value: relax.Expr, shape: Sequence[Size]) -> relax.Expr:
    """``value`` in another shape. Relax reads a size of 0 as "as before", which is not meant here."""
    if any(isinstance(size, int) and size == 0 for size in shape):
        return cx.emit(op.zeros(list(shape), dtype_of(value)))
    return cx.emit(op.reshape(value, list(shape)))


def swapped(cx: Context, value: relax.Expr, axes: Sequence[int]) -> relax.Expr:
    """``value`` with its axes in another order."""
    return value if list(axes) == sorted(axes) else cx.emit(op.permute_dims(value, list(axes)))
