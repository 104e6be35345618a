"""``explain``: the passes of ``passes.collage`` as far as the plan, and why it is what it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from ..frontend.models import Model, import_model
from ..lowering.library_file import why_no_file
from ..plan.explanation import EXPLANATION, Explanation, decode
from ..target import host_target
from .html import html_report

FORMATS = (".json", ".html")


def explain_with(
    passes: tvm.transform.Pass, model: Model, target: Target | None = None
) -> dict[str, Explanation]:
    """The explanation of each function, after ``passes`` that end with ``SearchPartition(explain=True)``."""
    imported, _ = import_model(model, keep_names=True)
    with target or host_target():
        return explanations(passes(imported))


def explanations(mod: IRModule) -> dict[str, Explanation]:
    """The explanation of each function that carries one."""
    return {
        gvar.name_hint: EXPLANATION.read(func)
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function) and EXPLANATION.on(func)
    }


def why_no_report(path: str) -> str | None:
    """Why a report cannot be written to ``path``, or None."""
    if Path(path).suffix not in FORMATS:
        return f"the name of a report ends in {' or '.join(FORMATS)}"
    return why_no_file(path)


def write_report(
    path: str, title: str, plans: Mapping[str, Any], explained: Mapping[str, Mapping[str, Any]]
) -> None:
    """Plans and explanations, both as plain data by function, as JSON or as a page, by the suffix of ``path``."""
    if Path(path).suffix == ".html":
        remarks = {name: plan["remarks"] for name, plan in plans.items()}
        text = html_report(title, {name: decode(data) for name, data in explained.items()}, remarks)
    else:
        whole = {name: plan | {"explanation": explained[name]} for name, plan in plans.items()}
        text = json.dumps(whole, indent=1) + "\n"
    Path(path).write_text(text, encoding="utf-8")
