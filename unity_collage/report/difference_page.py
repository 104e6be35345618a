"""Two plans side by side as one HTML file, made of the same parts as the page of a plan."""

from __future__ import annotations

from ..inspection.plan_diff import ProgramDifference
from .difference import difference_data
from .html import assembled

_SCRIPTS = ("common.js", "diff.js")
_STYLES = ("page.css", "diff.css")


def difference_page(found: ProgramDifference) -> str:
    """The page. Its data is that of ``--json``."""
    title = f"{found.first} and {found.second}"
    return assembled("diff.html", title, difference_data(found), _SCRIPTS, _STYLES)
