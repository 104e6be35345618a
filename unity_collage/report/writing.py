"""Writes reports of plans and explanations to files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..lowering.library_file import why_no_file
from ..plan.encoding import encode
from ..plan.explanation import Explanation
from ..plan.plan import Plan
from .cells import additive_text, duration
from .html import html_report

FORMATS = (".json", ".html")


def why_no_report(path: str) -> str | None:
    """Why a report cannot be written to ``path``, or None."""
    if Path(path).suffix not in FORMATS:
        return f"the name of a report ends in {' or '.join(FORMATS)}"
    return why_no_file(path)


def write_report(
    path: str, title: str, plans: Mapping[str, Plan], explained: Mapping[str, Explanation]
) -> None:
    """Write plans and explanations by function, as JSON or as a page, depending on the suffix of ``path``."""
    if Path(path).suffix == ".html":
        text = html_report(title, explained, {name: _noted(plan) for name, plan in plans.items()})
    else:
        whole = {
            name: {**plan, "explanation": encode(explained[name])} for name, plan in encoded(plans).items()
        }
        text = json.dumps(whole, indent=1) + "\n"
    Path(path).write_text(text, encoding="utf-8")


def encoded(plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Plans by function, as data."""
    return {name: {**encode(plan), **_error(plan)} for name, plan in plans.items()}


def _noted(plan: Plan) -> tuple[str, ...]:
    """The remarks of a plan, after the time of the whole program."""
    if plan.measured_seconds is None:
        return plan.remarks
    error = plan.additive_error
    more = "" if error is None else f"; {additive_text(error, plan.seconds)}"
    which = "" if plan.percentile == 50.0 else f"p{plan.percentile:g} "
    return (f"the whole program takes {which}{duration(plan.measured_seconds)}{more}", *plan.remarks)


def _error(plan: Plan) -> dict[str, float]:
    return {} if plan.additive_error is None else {"additive_error": plan.additive_error}
