"""``diff``: the plans of two programs side by side, function by function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tvm.ir import IRModule

from ..annotations import PLAN
from ..defaults import FILES_OF_TORCH
from ..errors import CollageError
from ..plan.difference import PlanDifference, difference
from ..plan.plan import Plan
from ..program import Program
from ..showing import Shown
from .plan_files import plans_of

MODELS = (".onnx", *FILES_OF_TORCH)
"""The suffixes of models."""

PlansByFunction = Mapping[str, Plan]


@dataclass(frozen=True)
class ProgramDifference(Shown):
    """The plans of two programs for one model. ``print`` and notebooks show it as tables."""

    first: str
    """What the first one is called."""
    second: str
    functions: Mapping[str, PlanDifference]
    """The functions that both have."""
    only_first: tuple[str, ...] = ()
    """Functions with a plan that only the first one has."""
    only_second: tuple[str, ...] = ()

    def __str__(self) -> str:
        import unity_collage

        return str(unity_collage.show(self))


def diff(a: Any, b: Any, *, names: tuple[str, str] | None = None) -> ProgramDifference:
    """The plans of ``a`` and ``b`` side by side: which kernels are fused differently or have another backend, and
    what the difference costs.

    ``a`` and ``b``: programs, partitioned modules, plans by function, one plan each, or the paths of saved programs, of
    reports as JSON, and of modules as text. ``names``: what they are called in tables; by default the files are named.

    Kernels are compared by the values of the model that they compute. All seconds are costs of the plans; nothing is
    measured. Raises CollageError for what has no plan, and where no function is in both.
    """
    given = (a, "the first"), (b, "the second")
    first, second = (plans_given(one, which) for one, which in given)
    titles = names or tuple(_title(one, which) for one, which in given)
    if len(first) == len(second) == 1:  # a plan may be given without the name of its function
        name = next(iter(second))
        first = {name: next(iter(first.values()))}
    both = [name for name in first if name in second]
    if not both:
        raise CollageError(
            f"no function is in both: {titles[0]} has {_listed(first)}, {titles[1]} has {_listed(second)}"
        )
    return ProgramDifference(
        titles[0],
        titles[1],
        {name: difference(first[name], second[name]) for name in both},
        tuple(name for name in first if name not in second),
        tuple(name for name in second if name not in first),
    )


def plans_given(given: Any, which: str = "it") -> PlansByFunction:
    """The plans of what :func:`diff` takes; raises CollageError where it has none. ``which`` names what has no file."""
    found, called = _read(given), _title(given, which)
    if found is None:
        raise CollageError(
            f"{called} is a loaded program, which has no plan: give the path of its file"
            if isinstance(given, Program)
            else f"{called} is not a program, a module, a plan or a path: {type(given).__name__}"
        )
    if not found:
        raise CollageError(f"{called} has no plan: no function of it was partitioned")
    return found


def _read(given: Any) -> PlansByFunction | None:
    if isinstance(given, (str, Path)):
        if Path(given).suffix in MODELS:
            raise CollageError(f"{given} is a model: compile it, and give the program")
        return plans_of(str(given))[0]
    if isinstance(given, Program):
        return given.plan
    if isinstance(given, IRModule):
        return PLAN.by_function(given)
    if isinstance(given, Plan):
        return {"plan": given}
    if isinstance(given, Mapping):
        plans = cast("Mapping[str, Any]", given)
        return plans if all(isinstance(plan, Plan) for plan in plans.values()) else None
    return None


def _title(given: Any, which: str) -> str:
    return Path(given).name if isinstance(given, (str, Path)) else which


def _listed(plans: PlansByFunction) -> str:
    names = list(plans)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
