"""The attributes of functions and modules, and the dataclasses that they hold.

What one pass knows and a later one needs is written as str, int, float, list and dict. So the script shows it and
parses back to it. No other file converts between dataclasses and attributes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

from cattrs import transform_error
from cattrs.errors import BaseValidationError
from tvm import ir, relax
from tvm_ffi import Array, Map

from .errors import InvalidAnnotation, MissingAnnotation
from .graph.extract import LIFTED as LIFTED
from .plan.candidate import Candidate, DeclinedBinding
from .plan.costs import Costs
from .plan.device_plan import DevicePlan
from .plan.encoding import decode, encode
from .plan.explanation import Explanation
from .plan.placed import FreelyPlaced, NamedDevice
from .plan.plan import Plan
from .plan.unrecognised import Unrecognised

T = TypeVar("T")

EXTERNAL_MODS = "external_mods"
"""Attribute of a module, by TVM's name: the runtime modules that contain functions it calls."""

THREADS = "collage.threads"
"""Attribute of a kernel's function: how many threads of the pool run it. Without it the backend decides."""

LABEL = "collage.label"
"""Attribute of a kernel's function without parts: the name that a code generator sees, in the program and when its cost
is measured."""

OPTIONS = "collage.options"
"""Attribute of a kernel's function: the options of its backend's library, by their names there
(:mod:`unity_collage.backends.options`)."""

PARTS = "collage.parts"
"""Attribute of a kernel's function: which bindings, by position, are one ``Composite`` function, and its attributes."""

COMPILED_AS = "collage.compiled_as"
"""Attribute of the function of a kernel that is measured: the function with free sizes that is compiled, and run at the
sizes of this one."""

SCHEDULES = "collage.schedules"
"""Attribute of a module or a kernel's function: tuned schedules by kernel, for FuseRemaining."""

DEVICE = "collage.device"
"""Attribute of a function: the label of the VDevice that its parameters and results are on, such as ``llvm:1``."""

UNSCHEDULED = "collage.unscheduled"
"""Attribute of a PrimFunc: the reason why it keeps its naive loops."""


def threads_of(func: ir.BaseFunc) -> int | None:
    """The value of ``THREADS`` on a function, or None."""
    threads = (func.attrs or {}).get(THREADS)
    return None if threads is None else int(threads)


def options_of(func: ir.BaseFunc) -> dict[str, str]:
    """The value of ``OPTIONS`` on a function; empty where it has none."""
    return {str(key): str(value) for key, value in ((func.attrs or {}).get(OPTIONS) or {}).items()}


class Annotation(Generic[T]):
    """One attribute of a function: its name, the pass that writes it, and the type of its value."""

    def __init__(self, name: str, writer: str, kind: Any) -> None:
        self.name = name
        self._writer = writer
        self._kind = kind

    def on(self, func: ir.BaseFunc | ir.IRModule) -> bool:
        """Whether ``func``, or a module, has the attribute."""
        return bool(func.attrs) and self.name in func.attrs

    def read(self, func: ir.BaseFunc | ir.IRModule) -> T:
        """Its value on ``func``; raises MissingAnnotation with the pass to run, InvalidAnnotation for wrong data."""
        return _decoded(self, self.encoded(func))

    def encoded(self, func: ir.BaseFunc | ir.IRModule) -> Any:
        """The attribute itself, which :meth:`read` decodes; raises MissingAnnotation."""
        if not self.on(func):
            raise MissingAnnotation(f"no {self.name} on this function: run {self._writer} first")
        return func.attrs[self.name]

    def decoded(self, value: Any) -> T:
        """What the attribute's ``value`` stands for; raises InvalidAnnotation."""
        try:
            return decode(self._kind, plain(value))
        except BaseValidationError as error:
            raise InvalidAnnotation(
                f"{self.name} cannot be read: {'; '.join(transform_error(error))}"
            ) from error

    def write(self, func: relax.Function, value: T) -> relax.Function:
        """A copy of ``func`` with the attribute ``value``."""
        return cast(relax.Function, func.with_attr(self.name, encode(value)))

    def by_function(self, mod: ir.IRModule) -> dict[str, T]:
        """Its values in ``mod``, by the name of the function that has it."""
        return {
            gvar.name_hint: self.read(func)
            for gvar, func in mod.functions_items()
            if isinstance(func, relax.Function) and self.on(func)
        }


@lru_cache(maxsize=16)
def _decoded(annotation: Annotation[T], value: Any) -> T:
    """:meth:`Annotation.decoded`, cached: a pass reads the same attribute many times."""
    return annotation.decoded(value)


def plain(value: Any) -> Any:
    """FFI containers and values as those of Python."""
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
DEVICES: Annotation[tuple[NamedDevice, ...]] = Annotation(
    "collage.devices", "PlanDevices", tuple[NamedDevice, ...]
)
FREELY_PLACED: Annotation[tuple[FreelyPlaced, ...]] = Annotation(
    "collage.freely_placed", "PlanDevices", tuple[FreelyPlaced, ...]
)
DEVICE_PLANS: Annotation[tuple[DevicePlan, ...]] = Annotation(
    "collage.device_plans", "ChooseDevices", tuple[DevicePlan, ...]
)
"""One plan for each dataflow block with a choice of devices. If no plan was made: a single one, with the reason."""
