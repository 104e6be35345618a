"""A call of ATen as an operator of Relax asks for it: its arguments by the names of the schema, and no overload yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax

from ...graph.shapes import dtype_of, shape_of
from ...reference.literals import is_literal, literal


class NotAten(Exception):
    """ATen has no counterpart of an operator; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that an operator reads, seen through views."""

    value: relax.Expr
    views: tuple[tuple[Any, ...], ...] = ()
    """Methods of torch's tensors with their arguments, innermost first; they copy nothing."""

    def seen(self, method: str, *arguments: Any) -> Operand:
        """The operand seen through one view more."""
        return replace(self, views=(*self.views, (method, *arguments)))


@dataclass(frozen=True, slots=True)
class TorchName:
    """A value with a name in ``torch``, such as a type of elements."""

    name: str


@dataclass(frozen=True, slots=True)
class ResultPlace:
    """Where a result of the operator comes from."""

    number: int = 0
    """Which of ATen's results; numbers from that of ATen's results on are those of ``AskedCall.also``."""
    found: tuple[tuple[Any, ...], ...] = ()
    """Views of ATen's result that are the operator's."""
    written: tuple[tuple[Any, ...], ...] = ()
    """Views of the operator's result that have the shape of ATen's."""


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call of ATen."""

    packet: str
    """The name in ``torch.ops.aten``."""
    operands: tuple[Any, ...]
    """The first arguments of the schema: operands, lists of them, numbers, texts."""
    named: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More arguments, by their names in the schema."""
    places: tuple[ResultPlace, ...] = (ResultPlace(),)
    """One for each result of the operator."""
    also: tuple[Operand, ...] = ()
    """Operands that are results too."""
    casts: bool = False
    """Whether results are converted to the types of the operator's."""


def rank_of(expr: relax.Expr) -> int:
    """The number of axes of a tensor."""
    return len(shape_with(expr))


def shape_with(expr: relax.Expr) -> tuple[int, ...]:
    """The sizes of a tensor; raises NotAten where they are not known."""
    shape = shape_of(expr)
    if shape is None:
        raise NotAten("its sizes are known only when the program runs")
    return shape


def number(expr: Any) -> Any:
    """A literal argument: a number, or a tuple of them; raises NotAten for others."""
    if not is_literal(expr):
        raise NotAten("an argument is computed when the program runs")
    return literal(expr, {})


def is_float(expr: relax.Expr) -> bool:
    """Whether a tensor has floats."""
    return dtype_of(expr).startswith(("float", "bfloat"))


def floats(expr: relax.Expr) -> str:
    """The type of a tensor of floats; raises NotAten for others."""
    if not is_float(expr):
        raise NotAten(f"ATen computes it for floats, not for {dtype_of(expr)}")
    return dtype_of(expr)


def operands_of(args: Sequence[relax.Expr]) -> tuple[Operand, ...]:
    """Arguments of an operator that are tensors; raises NotAten for others."""
    if not all(isinstance(arg.ty, relax.TensorType) for arg in args):
        raise NotAten("an argument is not a tensor")
    return tuple(map(Operand, args))


def tensors_in(arg: relax.Expr) -> list[Operand]:
    """The tensors in an argument that is a tuple; raises NotAten where its fields are not known."""
    if not isinstance(arg, relax.Tuple):
        raise NotAten("its operands are one tuple, whose fields are not known here")
    return list(operands_of(arg.fields))
