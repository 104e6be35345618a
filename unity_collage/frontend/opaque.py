"""Opaque calls, which no pass or backend handles, for operators without a converter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import IRModule

OPAQUE = "collage.opaque"
"""Attribute of a module: a line for each opaque call with its reason."""


@dataclass(frozen=True, slots=True)
class Result:
    """The type of a result as far as it is known before the program runs."""

    dtype: str
    dims: Sequence[Any]
    """Ints, expressions of TVM, and None where nothing is known."""
    is_sure: bool = True
    """Whether the known sizes follow from those of the operands: otherwise the program checks them."""


def remarks_of(mod: IRModule) -> tuple[str, ...]:
    """The operators of an imported module that are opaque calls, and why."""
    return tuple(map(str, (mod.attrs or {}).get(OPAQUE, ())))


def with_remarks(mod: IRModule, remarks: Sequence[str]) -> IRModule:
    """``mod`` with the lines for its calls; without lines it is the same module."""
    return mod.with_attr(OPAQUE, list(remarks)) if remarks else mod


def allocating_call(symbol: str, operands: Sequence[relax.Expr], results: Sequence[Result]) -> relax.Expr:
    """A call of a function that allocates its results; :func:`cast` gives each the known sizes."""
    types = [relax.TensorType(dtype=result.dtype, ndim=len(result.dims)) for result in results]
    ty = relax.TupleType(types) if len(types) > 1 else types[0]
    return relax.call_pure_packed(symbol, *operands, ty_args=[ty])


def parts_of(made: relax.Expr, count: int) -> list[relax.Expr]:
    """Each of ``count`` results of a call."""
    return [made] if count == 1 else [relax.TupleGetItem(made, number) for number in range(count)]


def cast(
    builder: relax.BlockBuilder, part: relax.Expr, result: Result, fresh_size: Callable[[], Any]
) -> relax.Var:
    """An allocated result with the known sizes; a run in which it has other sizes ends with an error.

    An unknown size is ``fresh_size()``.
    """
    var = part if isinstance(part, relax.Var) else builder.emit(part)
    dims = [fresh_size() if dim is None else dim for dim in result.dims]
    return builder.match_cast(var, relax.TensorType(dims, result.dtype))
