"""The one door between dataclasses and attributes of functions and modules.

What a pass knows and a later one needs is written as str, int, float, list and dict, so that the script shows it and
parses back to it.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from cattrs import transform_error
from cattrs.errors import BaseValidationError
from tvm import ir, relax
from tvm_ffi import Array, Map

from .errors import InvalidAnnotation, MissingAnnotation
from .graph.extract import LIFTED as LIFTED
from .plan.candidate import Candidate, DeclinedBinding
from .plan.costs import Costs
from .plan.encoding import decode, encode
from .plan.explanation import Explanation
from .plan.plan import Plan
from .plan.unrecognised import Unrecognised

T = TypeVar("T")

THREADS = "collage.threads"
"""Attribute of a kernel's function: how many threads of the pool run it; without it, its backend decides."""

LABEL = "collage.label"
"""Attribute of a kernel's function that is one part: the name that a code generator sees, in the program and when its
cost is measured."""

PARTS = "collage.parts"
"""Attribute of a kernel's function: which bindings, by position, are one ``Composite`` function, and its attributes."""

SCHEDULES = "collage.schedules"
"""Attribute of a module or a kernel's function: tuned schedules by kernel, for FuseRemaining."""

UNSCHEDULED = "collage.unscheduled"
"""Attribute of a PrimFunc: why it keeps its naive loops."""


def threads_of(func: ir.BaseFunc) -> int | None:
    """What ``THREADS`` says of a function, None where it says nothing."""
    said = (func.attrs or {}).get(THREADS)
    return None if said is None else int(said)


class Annotation(Generic[T]):
    """One attribute of a function: its name, the pass that writes it, and the type of its value."""

    def __init__(self, name: str, writer: str, kind: Any) -> None:
        self.name = name
        self._writer = writer
        self._kind = kind

    def on(self, func: ir.BaseFunc) -> bool:
        """Whether ``func`` carries it."""
        return bool(func.attrs) and self.name in func.attrs

    def read(self, func: ir.BaseFunc) -> T:
        """Its value; raises MissingAnnotation that names the pass to run, InvalidAnnotation for what was typed wrong."""
        if not self.on(func):
            raise MissingAnnotation(f"no {self.name} on this function: run {self._writer} first")
        try:
            return decode(self._kind, plain(func.attrs[self.name]))
        except BaseValidationError as error:
            raise InvalidAnnotation(f"{self.name} cannot be read: {'; '.join(transform_error(error))}") from error

    def write(self, func: relax.Function, value: T) -> relax.Function:
        """A copy of ``func`` that carries ``value``."""
        return cast(relax.Function, func.with_attr(self.name, encode(value)))


def plain(value: Any) -> Any:
    """FFI containers as Python's own."""
    if isinstance(value, Map) or hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (Array, list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | float):
        return value
    inner = getattr(value, "value", value)
    return str(inner) if isinstance(inner, str) else inner


UNRECOGNISED: Annotation[tuple[Unrecognised, ...]] = Annotation(
    "collage.unrecognised", "Prepare", tuple[Unrecognised, ...]
)
CANDIDATES: Annotation[tuple[Candidate, ...]] = Annotation(
    "collage.candidates", "AnnotateCandidates", tuple[Candidate, ...]
)
DECLINED: Annotation[tuple[DeclinedBinding, ...]] = Annotation(
    "collage.declined", "AnnotateCandidates", tuple[DeclinedBinding, ...]
)
COSTS: Annotation[Costs] = Annotation("collage.costs", "EstimateCosts", Costs)
PLAN: Annotation[Plan] = Annotation("collage.plan", "SearchPartition", Plan)
EXPLANATION: Annotation[Explanation] = Annotation(
    "collage.explanation", "SearchPartition(explain=True)", Explanation
)
