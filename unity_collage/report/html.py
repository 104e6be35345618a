"""An explanation as one HTML file that needs no network, no server, and no other scripts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from ..plan.encoding import encode
from ..plan.explanation import Explanation
from ..plan.memory import PlanMemory
from ..plan.plan import Plan
from ..showing import plain
from .beside import beside, titled
from .moves import moves
from .picture import picture_of
from .words import chances, encodable, memory_text, proof_text, sentence, why_it_won

_PAGE = resources.files("unity_collage.report") / "page"
_SCRIPTS = (
    "common.js",
    "page.js",
    "drawing.js",
    "picture.js",
    "large.js",
    "view.js",
    "times.js",
    "measured.js",
    "texts.js",
    "memory.js",
    "start.js",
)
"""In the order in which they run; the last one opens the first function."""


def html_report(
    title: str,
    explanations: Mapping[str, Explanation],
    remarks: Mapping[str, Sequence[str]] | None = None,
    plans: Mapping[str, Plan] | None = None,
) -> str:
    """The page, with what the ``plans`` know besides, and more ``remarks`` by function.

    Its data is JSON, which the script shows only as text. Functions are in the order of ``explanations``.
    """
    noted, known = remarks or {}, plans or {}
    profiled = [titled(name, plan) for name, plan in known.items() if plan.in_place is not None]
    shown: dict[str, Any] = {}
    for name, each in explanations.items():
        plan = known.get(name)
        facts = beside(each, plan, name, profiled)
        facts["remarks"] += noted.get(name, ())
        memory = None if plan is None else _memory(plan.memory)
        shown[name] = {
            **told(each),
            **facts,
            "picture": picture_of(each),
            "memory": memory,
            "moves": moves(each, facts["in_place"]),
        }
    return assembled("page.html", title, shown, _SCRIPTS, ("page.css",))


def assembled(page: str, title: str, data: Any, scripts: Sequence[str], styles: Sequence[str]) -> str:
    """One file: a ``page`` of this package with ``scripts`` and ``styles`` in their order, and ``data`` as JSON."""
    parts = {
        "TITLE": html.escape(encodable(title)),
        "STYLE": "\n".join(map(_part, styles)),
        # The data must not end the element that it is in, or start a comment.
        "DATA": json.dumps(plain(data), allow_nan=False).replace("<", "\\u003c"),
        "SCRIPT": "\n".join(map(_part, scripts)),
    }
    return re.sub("@([A-Z]+)@", lambda found: parts[found[1]], _part(page))


def _memory(memory: PlanMemory | None) -> dict[str, Any] | None:
    """The curve of each device and scope, and the peak in words."""
    if memory is None or not memory.kernels:
        return None
    spaces = [
        {"title": f"{space.device} {space.scope}", "weights": space.weights, "curve": space.curve}
        for space in memory.spaces
    ]
    return {"kernels": memory.kernels, "spaces": spaces, "says": sentence(memory_text(memory))}


def told(explanation: Explanation) -> dict[str, Any]:
    """The explanation as data, with its sentences."""
    data = encode(explanation)
    for kernel, item in zip(explanation.kernels, data.get("kernels", ()), strict=False):
        item["why"] = sentence(why_it_won(explanation, kernel))
    for candidate, item in zip(explanation.candidates, data.get("candidates", ()), strict=False):
        item["says"] = chances(candidate)
    return {**data, "says": sentence(proof_text(explanation))}


def _part(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
