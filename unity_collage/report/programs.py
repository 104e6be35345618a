"""Saved programs as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Column, Table

from ..calling.signature import Signature, shown
from .cells import left

if TYPE_CHECKING:
    from ..program.facts import Facts


def program_table(facts: Facts, why_not_here: str | None) -> Table:
    """One row for each fact about a program, and one that says whether it can run here."""
    table = Table(left(""), Column(overflow="fold"), box=None, show_header=False)  # paths are not cut
    for name, text in _rows(facts):
        table.add_row(name, escape(text))
    table.add_row("runs here", "yes" if why_not_here is None else escape(f"no: {why_not_here}"))
    return table


def _rows(facts: Facts) -> Iterable[tuple[str, str]]:
    if facts["signature"] is not None:
        signature = Signature.from_json(facts["signature"])
        for what, specs in (("takes", signature.inputs), ("returns", signature.results)):
            for spec in specs:
                yield what, f"{shown(spec.name)}: {spec}"
    yield "threads", "not known" if facts["threads"] is None else str(facts["threads"])
    yield "processor", f"{facts['processor'] or 'not known'}: {' '.join(facts['instruction_sets'])}"
    yield "libraries", _listed({f"collage_{name}": version for name, version in facts["libraries"].items()})
    if facts.get("torch"):
        yield "PyTorch", f"computes {', '.join(facts['torch'])}"
    if facts.get("custom"):
        yield "Python", f"functions for {', '.join(facts['custom'])}, which the process registers"
    for library in facts.get("custom_op_libraries", ()):
        yield "ONNX Runtime", f"registers {library['path']} (SHA-256 {library['digest']})"
    yield "made by", _listed({"unity_collage": facts["version"], **facts["wheels"], "tvm_ffi": facts["ffi"]})
    yield from facts["machine"].items()


def _listed(versions: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
