"""Modules between the passes as text: the kernels of each plan, or the candidates of what is not partitioned yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, DECLINED, PLAN
from ..plan.candidate import VIEW, Candidate
from ..plan.costs import Costs
from ..plan.plan import Plan
from ..profile.timing_points import type_text
from .cells import counted, duration, left, right
from .plans import plan_headline, plan_summary, share_text, time_text

ROWS = 30
"""How many kinds of candidates are shown."""

_OWN = "collage."
"""The prefix of the names of our attributes."""


@dataclass(frozen=True, slots=True)
class ShapesOfCall:
    """What a call reads and writes, without constants."""

    inputs: tuple[str, ...]
    result: str

    def __str__(self) -> str:
        return f"{', '.join(self.inputs)} -> {self.result}" if self.inputs else self.result


def module_summary(mod: IRModule, rows: int | None = None) -> RenderableType:
    """Each function of Relax with a plan, with candidates, or with neither; then how many other functions there are.

    ``rows``: how many kernels of a plan are shown; None: all.
    """
    parts: list[RenderableType] = []
    kernels = {
        kernel.function for plan in PLAN.by_function(mod).values() for kernel in plan.kernels
    } - set(PLAN.by_function(mod))  # fmt: skip
    others: dict[str, int] = {}
    for gvar, func in mod.functions_items():
        name = str(gvar.name_hint)
        if isinstance(func, relax.Function) and name not in kernels and "Codegen" not in (func.attrs or {}):
            parts += [_of_function(name, func, mod, rows), ""]
        else:
            kind = "PrimFunc" if isinstance(func, tirx.PrimFunc) else "function of a kernel"
            others[kind] = others.get(kind, 0) + 1
    counts = ", ".join(
        counted(n, kind) if kind == "PrimFunc" else f"{counted(n, 'function')} of kernels"
        for kind, n in others.items()
    )
    return Group(*parts, f"and {counts}") if counts else Group(*parts[:-1])


def _of_function(name: str, func: relax.Function, mod: IRModule, rows: int | None) -> RenderableType:
    if PLAN.on(func):
        plan = PLAN.read(func)
        return _planned(name, plan, shapes_of(func), rows) if plan.kernels else plan_summary(name, plan)
    if CANDIDATES.on(func):
        costs = COSTS.read(func) if COSTS.on(func) else None
        declined = len(DECLINED.read(func)) if DECLINED.on(func) else 0
        return _annotated(name, CANDIDATES.read(func), costs, declined)
    bindings = sum(len(block.bindings) for block in func.body.blocks)
    return f"[bold]{escape(name)}[/bold]: {counted(bindings, 'binding')}, no candidates and no plan"


def _planned(
    name: str, plan: Plan, shapes: Mapping[str, tuple[ShapesOfCall, ...]], rows: int | None
) -> RenderableType:
    """A kernel a line, in the order in which they run."""
    texts = [
        Column(title, overflow="ellipsis", no_wrap=True, ratio=ratio)
        for title, ratio in (("kernel", 2), ("operators", 2), ("shapes", 3))
    ]
    table = Table(texts[0], left("backend"), *texts[1:], right("cost"), right("share"), box=None, expand=True)
    seen: dict[str, int] = {}
    for kernel in plan.kernels[:rows]:
        calls = shapes.get(kernel.function, ())
        number = seen[kernel.function] = seen.get(kernel.function, -1) + 1
        cost, share = time_text(kernel.seconds), share_text(kernel.seconds, plan)
        shape = str(calls[min(number, len(calls) - 1)]) if calls else ""
        cells = (kernel.function, kernel.backend, kernel.label, shape)
        table.add_row(*map(escape, cells), cost, share)
    hidden = plan.kernels[rows:] if rows is not None else ()
    more = [f"({counted(len(hidden), 'kernel')} more)"] if hidden else []
    return Group(plan_headline(escape(name), plan), "", table, *more)


def _annotated(
    name: str, candidates: tuple[Candidate, ...], costs: Costs | None, declined: int
) -> RenderableType:
    """The candidates by kind, the most frequent ones first."""
    kinds: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in candidates:
        if candidate.backend != VIEW:
            kinds.setdefault((candidate.backend, candidate.title), []).append(candidate)
    offered = sum(map(len, kinds.values()))
    known = "no costs yet" if costs is None else _known(candidates, costs)
    headline = f"[bold]{escape(name)}[/bold]: {counted(offered, 'candidate')}, {known}"
    if declined:
        headline += f"; backends declined {counted(declined, 'binding')}"
    table = Table(
        Column("operators", overflow="ellipsis", no_wrap=True), left("backend"), right("count"), right("cost"),
        box=None,
    )  # fmt: skip
    ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
    for (backend, label), group in ordered[:ROWS]:
        table.add_row(
            escape(label), escape(backend), str(len(group)), "" if costs is None else _range(group, costs)
        )
    hidden = len(ordered) - ROWS
    more = [f"({counted(hidden, 'kind')} more)"] if hidden > 0 else []
    return Group(headline, "", table, *more) if kinds else headline


def _known(candidates: tuple[Candidate, ...], costs: Costs) -> str:
    known = sum(
        c.backend != VIEW and c.id in costs.keys and costs.of(c.id).seconds is not None for c in candidates
    )
    return f"{known} with a cost"


def _range(candidates: list[Candidate], costs: Costs) -> str:
    """``41.2 us to 103 us``, the costs of the candidates that have one."""
    found = [costs.of(c.id).seconds for c in candidates if c.id in costs.keys]
    seconds = sorted(each for each in found if each is not None)
    if not seconds:
        return ""
    texts = dict.fromkeys((duration(seconds[0]), duration(seconds[-1])))
    return " to ".join(texts)


def shapes_of(func: relax.Function) -> dict[str, tuple[ShapesOfCall, ...]]:
    """What the calls of kernels in a function read and write, by the name of what is called."""
    found: dict[str, tuple[ShapesOfCall, ...]] = {}
    for name, arguments, result in _calls(func):
        inputs = tuple(
            text for arg in arguments if isinstance(arg, relax.Var) for text in _tensor_texts(arg.ty)
        )
        call = ShapesOfCall(inputs, ", ".join(_tensor_texts(result)))
        found[name] = (*found.get(name, ()), call)
    return found


def _calls(func: relax.Function) -> Iterator[tuple[str, list[Any], Any]]:
    """The name, arguments and type of the result of each call: direct, or in destination-passing style."""
    for block in func.body.blocks:
        for binding in block.bindings:
            value: Any = getattr(binding, "value", None)
            if not isinstance(value, relax.Call):
                continue
            if isinstance(value.op, ir.GlobalVar):
                yield str(value.op.name_hint), list(value.args), binding.var.ty
            elif isinstance(value.op, ir.Op) and value.args and (name := _callee(value.args[0])):
                arguments = value.args[1] if len(value.args) > 1 else ()
                fields = arguments.fields if isinstance(arguments, relax.Tuple) else [arguments]
                yield name, list(fields), binding.var.ty


def _callee(expr: Any) -> str | None:
    if isinstance(expr, ir.GlobalVar):
        return str(expr.name_hint)
    return str(expr.global_symbol) if isinstance(expr, relax.ExternFunc) else None


def _tensor_texts(ty: Any) -> Iterator[str]:
    if isinstance(ty, relax.TupleType):
        for each in ty.fields:
            yield from _tensor_texts(each)
    elif isinstance(ty, relax.TensorType):
        yield type_text(ty)


def plain_script(mod: IRModule) -> str:
    """The script of ``mod`` without our attributes: plans and candidates make lines of 100 kB and more.

    It is for reading: passes that need the attributes do not run on it.
    """
    dropped: dict[str, int] = {}
    functions = {}
    for gvar, func in mod.functions_items():
        for name in filter(_is_own, _attributes(func)):
            dropped[name] = dropped.get(name, 0) + 1
            func = func.without_attr(name)
        functions[gvar] = func
    plain = IRModule(functions)
    for name in _attributes(mod):
        if _is_own(name):
            dropped[name] = dropped.get(name, 0)
        else:
            plain = plain.with_attr(name, mod.attrs[name])
    said = "".join(
        f"# left out: {name}, of {counted(n, 'function') if n else 'the module'}\n"
        for name, n in sorted(dropped.items())
    )
    return said + plain.script()


def _attributes(value: Any) -> list[str]:
    """The names of the attributes of a function or a module."""
    return [] if value.attrs is None else [str(name) for name in value.attrs.keys()]  # noqa: SIM118, not a dict


def _is_own(name: str) -> bool:
    return name.startswith(_OWN)
