"""WhyNot: what a rule returns if it found the beginning of its form, but not all of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WhyNot:
    """A near miss. If a binding does not match even the beginning of the form, a rule returns None instead."""

    reason: str
    """The operator, what was found there and what is needed, in one clause."""
    matched: int = 1
    """How many operators of the form were found. Of two near misses, the one with more is nearer."""


def is_no(answer: object) -> TypeIs[WhyNot | None]:
    """Whether a rule or a part of one found nothing to put in place: None or a WhyNot."""
    return answer is None or isinstance(answer, WhyNot)


def first_of(answers: Iterable[T | WhyNot | None]) -> T | WhyNot | None:
    """The first result that is an expression; without one the nearest miss; without a near miss None.

    Later results are not computed.
    """
    nearest: WhyNot | None = None
    for answer in answers:
        if isinstance(answer, WhyNot):
            if nearest is None or answer.matched > nearest.matched:
                nearest = answer
        elif answer is not None:
            return answer
    return nearest


def number_text(value: float) -> str:
    """A number as reasons show it: six digits."""
    return f"{float(value):.6g}"


def shape_text(shape: Iterable[object] | None) -> str:
    """``(2, 3)``, or that the shape is not known."""
    return "unknown" if shape is None else f"({', '.join(map(str, shape))})"
