"""What a rewrite is: a name, the operators it looks at, and a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tvm_ffi import register_error

from ..errors import CollageError
from .scope import Expr, Scope
from .why_not import WhyNot

ANY_OP = "*"
"""Stands for every operator in :attr:`Rewrite.ops`."""


@register_error
class RewriteError(CollageError):
    """A rule broke the driver's contract: it changed a type, or the rules do not terminate."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One small rewrite. The driver tries it at every binding of one of its operators.

    ``rewrite(expr, scope)`` returns the expression to put in place of ``expr``, built as deeply nested as
    is convenient. Where it does not apply it returns a :class:`WhyNot` if it found the beginning of its form,
    and None if it did not. Operands are always variables, constants or inline tuples, so a rule looks
    backwards, through ``scope``, and never forwards. The type must stay as it was or become more precise.
    """

    name: str
    ops: tuple[str, ...]
    """Names as :func:`~unity_collage.rewrites.scope.op_name` gives them, or ``ANY_OP``."""
    rewrite: Callable[[Any, Scope], Expr | WhyNot | None]
    """Its first argument is what ``ops`` name: calls of operators, or projections for ``GETITEM``."""


def rewrites_by_op(rules: Iterable[Rewrite]) -> Callable[[str], tuple[Rewrite, ...]]:
    """The rules to try at an operator, in the order given."""
    ordered = tuple(rules)
    cache: dict[str, tuple[Rewrite, ...]] = {}

    def at(op: str) -> tuple[Rewrite, ...]:
        if op not in cache:
            cache[op] = tuple(rule for rule in ordered if op in rule.ops or ANY_OP in rule.ops)
        return cache[op]

    return at
