"""Writes reports of plans and explanations to files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..lowering.library_file import write
from ..plan.encoding import encode
from ..plan.explanation import Explanation
from ..plan.plan import Plan
from ..showing import plain
from .graphs import dot_graph, netron_graph
from .html import html_report
from .words import encodable

FORMATS = (".html", ".json", ".onnx", ".dot")
"""The suffixes of reports."""


def write_report(
    path: str, title: str, plans: Mapping[str, Plan], explained: Mapping[str, Explanation]
) -> None:
    """Write plans and explanations by function in the form that the suffix of ``path`` names.

    A page, JSON, an ONNX model for Netron, or text for Graphviz. Raises CollageError with the reason in one line.
    """
    title = encodable(title)
    if Path(path).suffix == ".onnx":
        write(Path(path), netron_graph(title, explained))
        return
    if Path(path).suffix == ".dot":
        text = dot_graph(title, explained)
    elif Path(path).suffix == ".html":
        ordered = {name: explained[name] for name in (*plans, *explained) if name in explained}
        text = html_report(title, ordered, plans=plans)
    else:
        whole = {
            name: {**plan, "explanation": encode(explained.get(name))}
            for name, plan in encoded(plans).items()
        }
        text = json.dumps(plain(whole), indent=1, allow_nan=False) + "\n"
    write(Path(path), text.encode())


def encoded(plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Plans by function, as data."""
    return {name: {**encode(plan), **_error(plan)} for name, plan in plans.items()}


def _error(plan: Plan) -> dict[str, float]:
    return {} if plan.additive_error is None else {"additive_error": plan.additive_error}
