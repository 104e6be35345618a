"""The alternatives of a dataflow pattern, and all matches of all of them at one root.

TVM's matcher returns one match: of ``a | b`` the first side that fits, of a sum the first order of operands that fits.
So a pattern is expanded into patterns without choices, and each of them is matched separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import tvm
from tvm import relax
from tvm.relax.dpl import (
    AndPattern,
    AttrPattern,
    CallPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    OrPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
)

MAX_ALTERNATIVES = 256
"""The most ways that are tried: eight choices between two."""

_COMMUTATIVE = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "multiply", "maximum", "minimum", "equal", "not_equal"),
        *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)

Match = dict[DFPattern, relax.Expr]
"""The expression that each part of a pattern has matched, keyed by the parts of the original pattern."""


Alternative = tuple[DFPattern, dict[DFPattern, DFPattern]]
"""A pattern without choices, and for each new part of it the part of the original pattern that it is made of."""


def matches(
    alternatives: Iterable[Alternative], root: relax.Expr, definitions: Mapping[Any, Any]
) -> Iterator[Match]:
    """All matches of the ``alternatives`` of a pattern with ``root`` as its last expression, in their order.

    The same match may come several times.
    """
    for alternative, origin in alternatives:
        matched = alternative.extract_matched_expr(root, definitions)
        if matched is not None:
            yield {origin.get(part, part): expr for part, expr in matched.items()}


def tried(pattern: DFPattern) -> tuple[list[Alternative], str | None]:
    """The alternatives of ``pattern`` that are tried, and why these are not all, or None.

    The first one is ``pattern`` itself, whose match is the one that TVM prefers.
    """
    found = list(islice(_alternatives(pattern), 1 + MAX_ALTERNATIVES + 1))
    if len(found) <= 1 + MAX_ALTERNATIVES:
        return found, None
    return found[:-1], f"the pattern has more than {MAX_ALTERNATIVES} alternatives: the others are not tried"


def _alternatives(pattern: DFPattern) -> Iterator[Alternative]:
    """``pattern``, then one pattern for each way to decide its choices: a side of every ``|``, and an operand order of
    every commutative operator.

    A part that occurs twice is decided once, and a part of a side that is not taken is not decided.
    """
    yield pattern, {}
    decided: list[bool] | None = []
    while decided is not None:
        rebuilding = _Rebuilding(decided)
        made = rebuilding.of(pattern)
        if not rebuilding.decided:
            return
        yield made, rebuilding.origin
        decided = _following(rebuilding.decided)


def _following(decided: Sequence[bool]) -> list[bool] | None:
    """The decisions after these in the order of a tree, as far as they are known; None after the last ones."""
    last = next((place for place in reversed(range(len(decided))) if not decided[place]), None)
    return None if last is None else [*decided[:last], True]


def is_structure(part: DFPattern) -> bool:
    """Whether the expression that ``part`` matches belongs to the match; wildcards and type conditions do not."""
    return isinstance(part, (CallPattern, TuplePattern, TupleGetItemPattern))


def _below(part: DFPattern) -> tuple[DFPattern, ...]:
    if isinstance(part, (OrPattern, AndPattern)):
        return (part.left, part.right)
    if isinstance(part, CallPattern):
        return tuple(part.args)
    if isinstance(part, TuplePattern):
        return tuple(part.fields)
    if isinstance(part, TupleGetItemPattern):
        return (part.tuple,)
    if isinstance(part, (AttrPattern, DataTypePattern, ShapePattern, TypePattern)):
        return (part.pattern,)
    return ()


def _commutes(part: DFPattern) -> bool:
    if not isinstance(part, CallPattern) or not isinstance(part.op, ExprPattern):
        return False
    op = part.op.expr
    if not isinstance(op, tvm.ir.Op) or op.name not in _COMMUTATIVE or len(part.args) != 2:
        return False
    return not part.args[0].same_as(part.args[1])


class _Rebuilding:
    """Builds a pattern with its choices decided. A part without a choice inside stays the same object.

    The first choices are ``decided`` as given, later ones for the left side and the order that is written.
    """

    def __init__(self, decided: Sequence[bool]):
        self._given = iter(decided)
        self._made: dict[DFPattern, DFPattern] = {}
        self.decided: list[bool] = []
        """The decisions, in the order in which they were asked for."""
        self.origin: dict[DFPattern, DFPattern] = {}

    def of(self, part: DFPattern) -> DFPattern:
        if part not in self._made:
            made = self._new(part)
            self._made[part] = made
            if made is not part and not isinstance(part, OrPattern):
                self.origin[made] = part
        return self._made[part]

    def _decide(self) -> bool:
        self.decided.append(next(self._given, False))
        return self.decided[-1]

    def _new(self, part: DFPattern) -> DFPattern:
        if isinstance(part, OrPattern):
            return self.of(part.right if self._decide() else part.left)
        is_turned = _commutes(part) and self._decide()
        old = _below(part)
        new = [self.of(below) for below in old]
        if is_turned:
            new.reverse()
        if all(a.same_as(b) for a, b in zip(new, old, strict=True)):
            return part
        return self._with(part, new)

    def _with(self, part: DFPattern, new: list[DFPattern]) -> DFPattern:
        """``part`` over other parts."""
        if isinstance(part, CallPattern):
            # Whether further arguments are allowed is not an attribute: it only shows in the text.
            return CallPattern(part.op, new, str(part).endswith("...)"))
        if isinstance(part, AndPattern):
            return AndPattern(*new)
        if isinstance(part, TuplePattern):
            return TuplePattern(new)
        if isinstance(part, TupleGetItemPattern):
            return TupleGetItemPattern(new[0], part.index)
        if isinstance(part, AttrPattern):
            return AttrPattern(new[0], part.attrs)
        if isinstance(part, DataTypePattern):
            return DataTypePattern(new[0], part.dtype)
        if isinstance(part, ShapePattern):
            return ShapePattern(new[0], part.shape)
        assert isinstance(part, TypePattern)
        return TypePattern(new[0], part.ty)
