"""The kernels of an explained plan as text: their operators, and the loops or the source that the program runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tvm import ir, tirx
from tvm.ir import IRModule

from ..annotations import EXTERNAL_MODS
from ..plan.explanation import ExplainedKernel, Explanation
from ..plan.plan import Plan

_LONGEST_LINE, _MOST_LINES = 400, 400
_OWN = "collage."
_C_SOURCE = "c"
"""The kind of runtime modules that are C source until a program is saved."""


def with_scripts(explanation: Explanation, functions: Mapping[str, ir.BaseFunc]) -> Explanation:
    """The kernels with TVMScript of the ``functions`` that they were outlined as, by name.

    Equal kernels share the text of the first of them, with its names of values.
    """
    texts, first = _Texts(explanation.texts), dict[int, int]()
    kernels: list[ExplainedKernel] = []
    for kernel in explanation.kernels:
        cost, func = explanation.by_id[kernel.candidate].cost, functions.get(kernel.function)
        if func is not None and cost not in first:
            first[cost] = texts.index(script_of(func))
        kernels.append(kernel if func is None else replace(kernel, script=first[cost]))
    return replace(explanation, kernels=tuple(kernels), texts=texts.found())


def with_sources(explanation: Explanation, plan: Plan, final: IRModule) -> Explanation:
    """The kernels with what the ``final`` module of the ``plan`` runs for them: TVM's loops, or C source.

    Kernels of libraries have neither; kernels of another plan are not in the program.
    """
    functions = {gvar.name_hint: func for gvar, func in final.functions_items()}
    modules: Iterable[Any] = (final.attrs or {}).get(EXTERNAL_MODS, ())
    sources = [str(module.inspect_source()) for module in modules if module.kind == _C_SOURCE]
    planned = {(each.backend, each.label, each.bindings): each.function for each in plan.kernels}
    texts = _Texts(explanation.texts)
    kernels: list[ExplainedKernel] = []
    for kernel in explanation.kernels:
        candidate = explanation.by_id[kernel.candidate]
        names = tuple(explanation.bindings[index].name for index in candidate.bindings)
        function = planned.get((candidate.backend, candidate.label, names), "")
        func = functions.get(function)
        text = script_of(func) if isinstance(func, tirx.PrimFunc) else _source_with(f"{function}(", sources)
        kernels.append(replace(kernel, source=texts.index(text)) if function and text is not None else kernel)
    return replace(explanation, kernels=tuple(kernels), texts=texts.found())


def script_of(func: ir.BaseFunc) -> str:
    """TVMScript of a function for reading: without its name and our attributes, with short lines and a limit of them.

    Constants are placeholders, since their values are not printed.
    """
    for name in [] if func.attrs is None else [str(key) for key in func.attrs.keys()]:  # noqa: SIM118, not a dict
        if name.startswith(_OWN) or name == "global_symbol":
            func = func.without_attr(name)
    lines = func.script(int_dtype="int64", indent_spaces=2).splitlines()
    return _shortened(line for line in lines if line.strip() and not line.lstrip().startswith("# "))


def _source_with(call: str, sources: Iterable[str]) -> str | None:
    """The first source that has a function, shortened."""
    return next((_shortened(text.splitlines()) for text in sources if call in text), None)


def _shortened(lines: Iterable[str]) -> str:
    every = [line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..." for line in lines]
    more = len(every) - _MOST_LINES
    return "\n".join([*every[:_MOST_LINES], *([f"# {more} more lines are not shown"] if more > 0 else [])])


class _Texts:
    """Texts by their positions, each once."""

    def __init__(self, known: Iterable[str]) -> None:
        self._positions = {text: number for number, text in enumerate(known)}

    def index(self, text: str) -> int:
        return self._positions.setdefault(text, len(self._positions))

    def found(self) -> tuple[str, ...]:
        return tuple(self._positions)
