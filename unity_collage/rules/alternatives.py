"""The alternatives of a dataflow pattern, and all matches of all of them at one root.

TVM's matcher returns one match: of ``a | b`` the first side that fits, of a sum the first order of operands that fits.
So a pattern is expanded into patterns without choices, and each of them is matched separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product
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

MAX_ALTERNATIVES = 64
"""The most ways that are tried: six choices between two."""

_COMMUTATIVE = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "multiply", "maximum", "minimum", "equal", "not_equal"),
        *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)

Match = dict[DFPattern, relax.Expr]
"""The expression that each part of a pattern has matched, keyed by the parts of the original pattern."""


def matches(pattern: DFPattern, root: relax.Expr, definitions: Mapping[Any, Any]) -> Iterator[Match]:
    """All matches of ``pattern`` with ``root`` as its last expression; the match that TVM prefers comes first.

    Both sides of every ``|`` and both operand orders of every commutative operator are tried. The same match may come
    several times.
    """
    for alternative, origin in alternatives(pattern):
        matched = alternative.extract_matched_expr(root, definitions)
        if matched is not None:
            yield {origin.get(part, part): expr for part, expr in matched.items()}


def alternatives(pattern: DFPattern) -> Iterator[tuple[DFPattern, dict[DFPattern, DFPattern]]]:
    """``pattern``, then one pattern for each way to decide all its choices, with the origin of each new part.

    At most MAX_ALTERNATIVES ways are tried. A part that occurs twice is decided once.
    """
    yield pattern, {}
    choices: dict[DFPattern, None] = {}
    _collect(pattern, choices, set())
    if choices:
        for decided in islice(product((False, True), repeat=len(choices)), MAX_ALTERNATIVES):
            rebuilding = _Rebuilding(dict(zip(choices, decided, strict=True)))
            yield rebuilding.of(pattern), rebuilding.origin


def is_structure(part: DFPattern) -> bool:
    """Whether the expression that ``part`` matches belongs to the match; wildcards and type conditions do not."""
    return isinstance(part, (CallPattern, TuplePattern, TupleGetItemPattern))


def _collect(part: DFPattern, choices: dict[DFPattern, None], seen: set[DFPattern]) -> None:
    if part in seen:
        return
    seen.add(part)
    if isinstance(part, OrPattern) or _commutes(part):
        choices[part] = None
    for below in _below(part):
        _collect(below, choices, seen)


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
    return isinstance(op, tvm.ir.Op) and op.name in _COMMUTATIVE and len(part.args) == 2


class _Rebuilding:
    """Builds a pattern with its choices decided. A part without a choice inside stays the same object."""

    def __init__(self, decisions: dict[DFPattern, bool]):
        self._decisions = decisions
        self._made: dict[DFPattern, DFPattern] = {}
        self.origin: dict[DFPattern, DFPattern] = {}

    def of(self, part: DFPattern) -> DFPattern:
        if part not in self._made:
            made = self._new(part)
            self._made[part] = made
            if made is not part and not isinstance(part, OrPattern):
                self.origin[made] = part
        return self._made[part]

    def _new(self, part: DFPattern) -> DFPattern:
        if isinstance(part, OrPattern):
            return self.of(part.right if self._decisions[part] else part.left)
        old = _below(part)
        new = [self.of(below) for below in old]
        if self._decisions.get(part):
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
