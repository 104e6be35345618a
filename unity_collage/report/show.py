"""``show``: modules, programs and plans as text and in notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any, cast

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from tvm.ir import IRModule

from ..calling.signature import shown as shown_name
from ..errors import CollageError
from ..inspection.plan_diff import ProgramDifference
from ..plan.explanation import Explanation
from ..plan.plan import Plan
from ..profile.result import Profile
from ..program import Program
from .as_html import as_html, preformatted
from .difference import difference_summary
from .kinds import explanation_summary
from .modules import module_summary, plain_script
from .plans import plan_summary
from .profiles import profile_summary

WIDTH = 120
"""Columns of the text."""


@dataclass(frozen=True)
class Display:
    """What :func:`show` found: ``print`` writes it as text, and a notebook shows it as tables of the same figures."""

    content: RenderableType | str
    is_script: bool = False

    def __str__(self) -> str:
        if self.is_script:
            return str(self.content)
        file = StringIO()
        Console(file=file, width=WIDTH, color_system=None, force_jupyter=False).print(
            self.content, highlight=False
        )
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return preformatted(str(self)) if self.is_script else as_html(self.content)


def show(value: Any, *, script: bool = False, rows: int | None = None) -> Display:
    """A view of ``value`` for people: ``print(uc.show(mod))``, or as the last line of a cell of a notebook.

    ``value``: a module before or after any of the passes, a program, its plans, one plan, an explanation, a profile, or
    what :func:`unity_collage.diff` returns. A partitioned module has a line for each kernel: its name, backend,
    operators, shapes, cost and share. ``rows``: how many of them are shown; by default all.

    With ``script`` it is the script of a module without the attributes of this package. Raises CollageError for other
    values.
    """
    if script:
        if not isinstance(value, IRModule):
            raise CollageError(f"only a module has a script, not {type(value).__name__}")
        return Display(plain_script(value), is_script=True)
    return Display(_content(value, rows))


def _content(value: Any, rows: int | None) -> RenderableType:
    if isinstance(value, IRModule):
        return module_summary(value, rows)
    if isinstance(value, Program):
        return _program(value)
    if isinstance(value, Plan):
        return plan_summary("plan", value)
    if isinstance(value, Explanation):
        return explanation_summary("plan", value)
    if isinstance(value, Profile):
        return profile_summary("profile", value, *([] if rows is None else [rows]))
    if isinstance(value, ProgramDifference):
        return difference_summary(value, *([] if rows is None else [rows]))
    if isinstance(value, Mapping):
        parts = [_named(str(name), each) for name, each in cast("Mapping[Any, Any]", value).items()]
        if parts and all(part is not None for part in parts):
            return _spaced([part for part in parts if part is not None])
    raise CollageError(
        f"show takes a module, a program, plans, a profile or a difference, not {type(value).__name__}"
    )


def _named(name: str, value: Any) -> RenderableType | None:
    if isinstance(value, Plan):
        return plan_summary(name, value)
    return explanation_summary(name, value) if isinstance(value, Explanation) else None


def _program(program: Program) -> RenderableType:
    """The inputs and results of a program, what it is for, and its plans."""
    signature = program.signature
    lines: list[str] = []
    for what, specs in (("takes", signature.inputs), ("returns", signature.results)) if signature else ():
        lines += [f"{what} {escape(shown_name(spec.name))}: {escape(str(spec))}" for spec in specs]
    if signature is None:
        lines.append(f"takes {escape(', '.join(program.input_names))}")
    threads = f", for {program.threads} threads" if program.threads else ""
    lines.append(f"runs on the {program.device}{threads}")
    if program.plan is None:
        lines.append("a loaded program has no plan; its file has: unity-collage info FILE.so")
    plans = [plan_summary(name, plan) for name, plan in (program.plan or {}).items()]
    return _spaced([Group(*lines), *plans])


def _spaced(parts: list[RenderableType]) -> RenderableType:
    return Group(*(line for part in parts for line in (part, "")))
