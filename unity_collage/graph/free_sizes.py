"""Sizes that are known when a program runs: polynomials of free sizes, with which lowerings compute as with ints.

A lowering compares dims, multiplies them to strides and divides addresses by strides. It is right for every size if
each answer holds for every size: ``batch * 64 == batch * 64`` and ``7 < length + 7`` do, ``batch < length`` does not.
:class:`Size` answers what holds from the least value of each free size on, and raises :class:`UnknownSize` for the
rest. Equal are only sizes that are always equal. So a free size is not 1, and code for extents of 1 is not used for it,
which is slower at most.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import tvm_ffi
from tvm import ir, relax, sym, tirx
from tvm.ir import IRModule

Symbol = tuple[str, int, int]
"""A free size: its text, a hash that tells it from others of the same name, and its least value.

That of a variable is 1, since nothing is computed where one is 0. That of another expression is 0: the height behind a
stride is ``(h - 1) // 2 + 1``, and 1 for an image of one row."""

Term = tuple[Symbol, ...]
"""A product of free sizes, in ascending order; the constant term is empty."""


_LEAST: ContextVar[Mapping[Symbol, int]] = ContextVar("least", default=MappingProxyType({}))
"""The least value of free sizes that are at least 2, see :func:`unless_one`."""


class UnknownSize(Exception):
    """A property of free sizes does not hold for all or for none of them; the message is a reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """A sum of products of free sizes with integer factors; one that has a constant term only is an int instead."""

    terms: Mapping[Term, int]
    """The factor of each product, none of them 0."""

    def __add__(self, other: Any) -> Any:
        return _made(Counter(self.terms), _terms(other), 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _made(Counter(self.terms), _terms(other), -1)

    def __rsub__(self, other: Any) -> Any:
        return _made(Counter(_terms(other)), self.terms, -1)

    def __neg__(self) -> Any:
        return 0 - self

    def __mul__(self, other: Any) -> Any:
        product: Counter[Term] = Counter()
        for one, factor in self.terms.items():
            for two, times in _terms(other).items():
                product[tuple(sorted(one + two))] += factor * times
        return _made(product, {}, 1)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return _divided(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        return _divided(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        return _divided(self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        return _divided(other, self)[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __lt__(self, other: Any) -> bool:
        return _is_negative(self - other, f"{self} < {other}")

    def __le__(self, other: Any) -> bool:
        return _is_negative(self - other - 1, f"{self} <= {other}")

    def __gt__(self, other: Any) -> bool:
        return _is_negative(other - self, f"{self} > {other}")

    def __ge__(self, other: Any) -> bool:
        return _is_negative(other - self - 1, f"{self} >= {other}")

    def __bool__(self) -> bool:
        return self > 0 or self < 0

    def __index__(self) -> int:
        raise UnknownSize(f"the size {self} is known only when the program runs")

    __int__ = __float__ = __index__

    def __str__(self) -> str:
        shown = [
            "*".join([str(factor)] * (factor != 1 or not term) + [symbol[0] for symbol in term])
            for term, factor in self.terms.items()
        ]
        return " + ".join(shown)

    __repr__ = __str__

    def to_json(self, names: Mapping[Symbol, str]) -> dict[str, Any]:
        """The size as the executors read it: ``{"terms": [[factor, name, ...], ...]}``."""
        return {
            "terms": [[factor, *(names[symbol] for symbol in term)] for term, factor in self.terms.items()]
        }

    def symbols(self) -> set[Symbol]:
        """The free sizes in it."""
        return {symbol for term in self.terms for symbol in term}

    def symbol(self) -> Symbol | None:
        """The free size that it is, or None for a sum or a product."""
        found = self.linear()
        return found[0] if found is not None and found[1:] == (1, 0) else None

    def linear(self) -> tuple[Symbol, int, int] | None:
        """The free size, the factor and the constant of a size like ``2 * n + 1``; None for other sizes."""
        rest = [(term, factor) for term, factor in self.terms.items() if term]
        if len(rest) != 1 or len(rest[0][0]) != 1:
            return None
        return rest[0][0][0], rest[0][1], self.terms.get((), 0)


def size_of(extent: ir.Expr) -> Any:
    """An extent of a shape as an int or :class:`Size`.

    An expression that is not a polynomial, such as ``length // 2``, is a free size of its own.
    """
    if isinstance(extent, tirx.IntImm):
        return int(extent.value)
    if isinstance(extent, (tirx.Add, tirx.Sub, tirx.Mul)):
        a, b = size_of(extent.a), size_of(extent.b)
        return a + b if isinstance(extent, tirx.Add) else a - b if isinstance(extent, tirx.Sub) else a * b
    if isinstance(extent, ir.Var):
        return Size({((extent.name, hash(extent), 1),): 1})
    text = re.sub(r"T\.int64\((-?\d+)\)", r"\1", str(extent))
    return Size({((text, tvm_ffi.structural_hash(extent), 0),): 1})


def shape_with_sizes(ty: ir.Type) -> tuple[Any, ...] | None:
    """The extents of a tensor type as ints and sizes, or None if its shape is not known."""
    shape = ty.shape if isinstance(ty, relax.TensorType) else None
    return tuple(map(size_of, shape.values)) if isinstance(shape, relax.ShapeExpr) else None


@dataclass(frozen=True, slots=True)
class SizePlace:
    """An extent that determines a free size: it is ``factor`` times the size, plus ``offset``."""

    argument: int
    """The number of the tensor."""
    axis: int
    factor: int = 1
    offset: int = 0


def places_of_sizes(shapes: Sequence[Sequence[Any]]) -> dict[Symbol, SizePlace]:
    """The first extent in ``shapes`` that determines each free size."""
    found: dict[Symbol, SizePlace] = {}
    for number, shape in enumerate(shapes):
        for axis, extent in enumerate(shape):
            if isinstance(extent, Size) and (linear := extent.linear()) is not None:
                symbol, factor, offset = linear
                found.setdefault(symbol, SizePlace(number, axis, factor, offset))
    return found


def _compared(one: Any, other: Any) -> int:
    """-1, 0 or 1 as ``one`` is at most, equal to or at least ``other`` for all sizes."""
    if one == other:
        return 0
    with contextlib.suppress(UnknownSize):
        if one >= other:
            return 1
    return -1 if one <= other else 1


ascending = functools.cmp_to_key(_compared)
"""A key to sort sizes by; raises UnknownSize where some sizes would change the order."""


def sizes_in(extent: ir.Expr) -> list[ir.Var]:
    """The variables in an expression of sizes."""
    walk: Any = tvm_ffi.structural_walk  # type: ignore[reportUnknownMemberType]
    found: list[ir.Var] = []
    walk(extent, (tirx.Var, found.append))
    return found


def substituted(extent: ir.Expr | ir.Type, change: Callable[[ir.Var], ir.Expr]) -> Any:
    """An expression of sizes, or a type with such expressions, with each variable changed."""
    mapped: Any = tvm_ffi.structural_map  # type: ignore[reportUnknownMemberType]
    return mapped(extent, (tirx.Var, change))


def with_bound_sizes(mod: IRModule, sizes: Mapping[str, int]) -> IRModule:
    """``mod`` with numbers for free sizes of ``main``, by name.

    TVM puts the numbers in. Then what is computed from numbers alone becomes a number, such as the ends of slices: the
    script of ``1 + 1`` does not parse back.
    """
    mapped: Any = tvm_ffi.structural_map  # type: ignore[reportUnknownMemberType]
    bound = relax.transform.BindSymbolicVars(dict(sizes), "main")(mod)
    kinds = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)
    main = mapped(bound["main"], (kinds, _without_arithmetic))
    functions = {**dict(bound.functions_items()), bound.get_global_var("main"): main}
    return IRModule(functions, attrs=bound.attrs, global_infos=bound.global_infos)


def _without_arithmetic(extent: ir.Expr) -> ir.Expr:
    return extent if sizes_in(extent) else sym.Analyzer().simplify(extent)


def is_free(extent: Any) -> bool:
    """Whether an extent is known only when the program runs."""
    return isinstance(extent, Size)


@contextlib.contextmanager
def unless_one(extent: Any) -> Generator[None]:
    """Inside the ``with`` block ``extent`` is not 1, if it is a free size: for properties that do not matter along an
    axis of one element.
    """
    symbol = extent.symbol() if isinstance(extent, Size) else None
    token = _LEAST.set({**_LEAST.get(), symbol: 2} if symbol is not None else _LEAST.get())
    try:
        yield
    finally:
        _LEAST.reset(token)


_Args = ParamSpec("_Args")
_Step = TypeVar("_Step")


def for_all_sizes(table: Callable[_Args, _Step | str]) -> Callable[_Args, _Step | str]:
    """Turns a function that makes steps into one that returns a reason if its result depends on the free sizes."""

    @functools.wraps(table)
    def answer(*args: _Args.args, **kwargs: _Args.kwargs) -> _Step | str:
        try:
            return table(*args, **kwargs)
        except UnknownSize as error:
            return str(error)

    return answer


def _terms(value: Any) -> Mapping[Term, int]:
    if isinstance(value, Size):
        return value.terms
    return {(): value} if value else {}


def _made(sum_of: Counter[Term], more: Mapping[Term, int], sign: int) -> Any:
    """The sum as an int where no free size is left."""
    for term, factor in more.items():
        sum_of[term] += sign * factor
    left = {term: factor for term, factor in sum_of.items() if factor}
    if not left or list(left) == [()]:
        return left.get((), 0)
    return Size(left)


def _is_negative(value: Any, question: str) -> bool:
    """Whether ``value`` is below 0 for all sizes from the least up; raises UnknownSize if only for some."""
    if not isinstance(value, Size):
        return value < 0
    factors = [factor for term, factor in value.terms.items() if term]
    least = _LEAST.get()
    at_least = sum(
        factor * math.prod(least.get(symbol, symbol[2]) for symbol in term)
        for term, factor in value.terms.items()
    )
    if all(factor > 0 for factor in factors) and at_least >= 0:
        return False
    if all(factor < 0 for factor in factors) and at_least < 0:
        return True
    raise UnknownSize(f"it depends on the sizes whether {question}")


def _divided(value: Any, by: Any) -> tuple[Any, Any]:
    """Quotient and remainder, for a divisor of one term; raises UnknownSize where they depend on the sizes."""
    question = f"what {value} divided by {by} is"
    divisor = list(_terms(by).items())
    if len(divisor) != 1 or divisor[0][1] < 1:
        raise UnknownSize(f"it depends on the sizes {question}")
    unit, factor = divisor[0]
    quotient: Any = 0
    rest: Any = 0
    for term, times in _terms(value).items():
        left = Counter(term)
        left.subtract(unit)
        whole, over = divmod(times, factor) if min(left.values(), default=0) >= 0 else (0, times)
        quotient += whole * _made(Counter({tuple(sorted(left.elements())): 1}), {}, 1) if whole else 0
        rest += over * _made(Counter({term: 1}), {}, 1) if over else 0
    if not (0 <= rest < by):
        raise UnknownSize(f"it depends on the sizes {question}")
    return quotient, rest
