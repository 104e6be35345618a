"""Writes docs/backends.md: what each backend takes, by its rule.

usage: python scripts/backend_page.py [--check]

With ``--check`` nothing is written; the exit code is 1 where the page is not what the rules answer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tvm import relax
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.backends.base import Backend
from unity_collage.backends.registry import known
from unity_collage.graph import DataflowGraph, members
from unity_collage.rules import Declined, Found
from unity_collage.target import CUDA
from unity_collage.testing.conformance import CASES, CUDA_CASES, case

PAGE = Path(__file__).resolve().parents[1] / "docs" / "backends.md"
TARGETS = {
    "llvm": Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}),
    CUDA: Target({"kind": CUDA, "arch": "sm_90"}),
}
"""The targets for the rules, by kind: no answer depends on the machine that runs this."""

nn: Any = R.nn
"""TVM annotates the parameters of its operators too narrowly."""

IN_BFLOAT16 = tuple(
    case(name, body, *shapes, dtype="bfloat16")
    for name, body, *shapes in (
        ("relu", nn.relu, (3, 5)),
        ("sigmoid", R.sigmoid, (3, 5)),
        ("add", R.add, (3, 5), (3, 5)),
        ("multiply", R.multiply, (3, 5), (3, 5)),
        ("mean", lambda x: R.mean(x, axis=[1]), (3, 5)),
        ("softmax", lambda x: nn.softmax(x, axis=-1), (3, 5)),
        ("matmul", R.matmul, (5, 7), (7, 3)),
        ("matmul+bias", lambda x, y, b: R.add(R.matmul(x, y), b), (5, 7), (7, 3), (3,)),
        ("conv2d", nn.conv2d, (1, 3, 7, 9), (5, 3, 3, 3)),
        ("max_pool2d", lambda x: nn.max_pool2d(x, pool_size=(2, 2)), (1, 4, 8, 8)),
        ("avg_pool2d", lambda x: nn.avg_pool2d(x, pool_size=(2, 2)), (1, 4, 8, 8)),
    )
)
"""Functions of a type that the kit does not have."""

FOLDERS = (
    "onednn",
    "openblas",
    "kernels",
    "cudnn",
    "cublas",
    "tvm",
    "tvm_openblas",
    "runtimes",
    "mnn",
    "aten",
)
"""The packages of our backends, by preference."""

SHORT = {"float32": "f32", "float16": "f16", "float64": "f64", "bfloat16": "bf16", "int32": "i32", "int64": "i64",
         "int8": "i8", "uint8": "u8", "bool": "bool"}  # fmt: skip
"""Short names of types, in the order of the page."""

HEAD = """# What each backend takes

This page is generated: `python scripts/backend_page.py` writes it, and a test fails if it is out of date. The script
calls the rule of each backend for all functions of the
[conformance kit](writing_a_backend.md#the-conformance-kit), and for some more in bfloat16. The targets are an
x86-64-v3 processor and a GPU of compute capability 9.0. No library is needed for that, but PyTorch: its schemas are the
rule of `torch`. Whether a possible kernel is
used depends on its [measured cost](costs.md). For a node of your own model, run
[`unity-collage explain --node`](why_not.md).

There is no backend for the Arm Compute Library: in November 2026 PyPI had no wheel of it.

The first table is for all backends. Each backend then has a section with the reasons why it declined operators. A
backend may decline an operator in one function and take it in another. A reason that begins with *not behind* is about
a longer kernel: the operator cannot be added to a kernel that ends with the operator named there, but it may be a
kernel of its own.

## Operators

A cell lists the element types in which the backend took the operator.

* Types in parentheses: the backend took the operator only in kernels with other operators.
* *declined*: the backend's kernels may begin with the operator, but it declined all functions with it. Its section
  says why.
* *untried*: the backend's kernels may begin with the operator, but no function that was tried has it.
"""


@dataclass
class Answers:
    """The answers of a backend's rule for the functions of the kit."""

    begins: frozenset[str]
    """The operators that its kernels may begin with; empty where the rule names none."""
    alone: dict[str, set[str]] = field(default_factory=dict)
    """Types of operators that are a kernel by themselves."""
    together: dict[str, set[str]] = field(default_factory=dict)
    """Types of operators in kernels with others."""
    declined: dict[tuple[str, str], str] = field(default_factory=dict)
    """By operator and reason, the first function with that answer."""


def page() -> str:
    """The text of the page."""
    backends = ours()
    graphs = [(each, DataflowGraph(each.make())) for each in (*CASES, *CUDA_CASES, *IN_BFLOAT16)]
    found = {name: _answers(backend, graphs) for name, (backend, _) in backends.items()}
    making = {name: each for name, each in found.items() if each.begins or each.alone or each.together}
    return "\n".join([HEAD, *_table(making), *_sections(backends, found)])


def ours() -> dict[str, tuple[Backend, str]]:
    """The backends of this package by name, each with the docstring of its module."""
    modules = [import_module(f"unity_collage.backends.{folder}.backend") for folder in FOLDERS]
    return {
        backend.name: (backend, str(module.__doc__))
        for module in modules
        for backend in known().values()
        if any(value is backend for value in vars(module).values())
    }


def beginnings(rule: Any) -> frozenset[str]:
    """The operators that the kernels of a rule may begin with, if the rules in it name them."""
    if isinstance(rule, tuple):
        return frozenset().union(*map(beginnings, rule))
    if not is_dataclass(rule):
        return frozenset()
    named = (*getattr(rule, "anchors", ()), *getattr(rule, "ops", ()))
    own = {*named, *filter(None, [getattr(rule, "root", None)])}
    return frozenset(map(_plain, own)).union(*(beginnings(getattr(rule, each.name)) for each in fields(rule)))


def _answers(backend: Backend, graphs: Sequence[tuple[Any, DataflowGraph]]) -> Answers:
    kinds = [kind for kind in TARGETS if kind in backend.kinds]
    with TARGETS[kinds[0]]:
        rule = backend.rule(TARGETS[kinds[0]])
        answers = Answers(beginnings(rule))
        for case, graph in graphs:
            if case.kind not in (None, *kinds):
                continue
            for each in rule.apply(graph):
                if isinstance(each, Found):
                    _take(answers, graph, each)
                elif each.condition == "predicate":
                    _decline(answers, graph, each, case.name)
    return answers


def _take(answers: Answers, graph: DataflowGraph, found: Found) -> None:
    nodes = [graph.nodes[index] for index in members(found.inside)]
    calls = [(node.op, node.call) for node in nodes if node.call is not None]
    into = answers.alone if len(calls) == 1 else answers.together
    for operator, call in calls:
        into.setdefault(_plain(operator), set()).add(_type(call))


def _decline(answers: Answers, graph: DataflowGraph, declined: Declined, where: str) -> None:
    operator = _plain(graph.nodes[declined.index].op)
    answers.declined.setdefault((operator, declined.reason), where)


def _type(call: relax.Call) -> str:
    """The element type of the first tensor that an operator reads, or of its result where it reads none."""
    for value in (*call.args, call):
        ty = value.ty
        while isinstance(ty, relax.TupleType) and len(ty.fields):
            ty = ty.fields[0]
        if isinstance(ty, relax.TensorType):
            return str(ty.dtype)
    return ""


def _table(found: dict[str, Answers]) -> Iterator[str]:
    operators = sorted({op for each in found.values() for op in (*each.begins, *each.alone, *each.together)})
    yield f"| operator | {' | '.join(f'[{name}](#{name})' for name in found)} |"
    yield f"|{' --- |' * (len(found) + 1)}"
    for operator in operators:
        yield f"| `{operator}` | {' | '.join(_cell(each, operator) for each in found.values())} |"
    yield ""


def _cell(answers: Answers, operator: str) -> str:
    if operator in answers.alone:
        return _types(answers.alone[operator])
    if operator in answers.together:
        return f"({_types(answers.together[operator])})"
    if operator not in answers.begins:
        return ""
    return "*declined*" if any(operator == one for one, _ in answers.declined) else "*untried*"


def _types(names: Iterable[str]) -> str:
    order = list(SHORT)
    known_ones = sorted(filter(None, names), key=lambda name: order.index(name) if name in SHORT else 99)
    return " ".join(SHORT.get(name, name) for name in known_ones)


def _sections(backends: dict[str, tuple[Backend, str]], found: dict[str, Answers]) -> Iterator[str]:
    for name, (backend, about) in backends.items():
        answers = found[name]
        kinds = " and ".join(
            {"llvm": "CPUs", CUDA: "NVIDIA GPUs"}[kind] for kind in sorted(backend.kinds)[::-1]
        )
        sizes = (
            "also sizes that are known only when the program runs"
            if backend.takes_free_sizes
            else "fixed sizes only"
        )
        yield from (f"## {name}", "", f"For {kinds}; {sizes}.", "")
        for title, text in re.findall(
            r"^(Takes|Declines|Needs) +(.*?)(?=^\S|\Z)", about, re.MULTILINE | re.DOTALL
        ):
            yield f"* *{title}*: {_markdown(text)}"
        if answers.begins:
            yield f"* *Kernels begin with*: {', '.join(f'`{op}`' for op in sorted(answers.begins))}"
        if not answers.declined:
            yield ""
            continue
        yield from (
            "",
            "| operator | why it was declined | in this function |",
            "| --- | --- | --- |",
        )
        for (operator, reason), where in sorted(answers.declined.items()):
            yield f"| `{operator}` | `{_escaped(reason)}` | {_escaped(where)} |"
        yield ""


def _plain(operator: str) -> str:
    return operator.removeprefix("relax.")


def _markdown(text: str) -> str:
    """A part of a docstring in one line of Markdown."""
    text = re.sub(r":\w+:`([^`]*)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    text = page()
    if arguments == ["--check"]:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
