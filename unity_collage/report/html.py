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
from .picture import picture_of
from .words import chances, memory_text, proof_text, sentence, why_it_won

_PAGE = resources.files("unity_collage.report") / "page"
_SCRIPTS = ("page.js", "drawing.js", "picture.js", "view.js", "times.js", "memory.js", "start.js")
"""In the order in which they run; the last one opens the first function."""


def html_report(
    title: str,
    explanations: Mapping[str, Explanation],
    remarks: Mapping[str, Sequence[str]] | None = None,
    memory: Mapping[str, PlanMemory | None] | None = None,
) -> str:
    """The page, with the ``remarks`` and the ``memory`` of each plan. Its data is JSON, which the script shows only as
    text."""
    noted, held = remarks or {}, memory or {}
    shown = {
        name: {**told(each), "remarks": list(noted.get(name, ())), "picture": picture_of(each),
               "memory": _memory(held.get(name))}
        for name, each in explanations.items()
    }  # fmt: skip
    data = json.dumps(shown)
    parts = {
        "TITLE": html.escape(title),
        "STYLE": _part("page.css"),
        # The data must not end the element that it is in, or start a comment.
        "DATA": data.replace("<", "\\u003c"),
        "SCRIPT": "\n".join(map(_part, _SCRIPTS)),
    }
    return re.sub("@([A-Z]+)@", lambda found: parts[found[1]], _part("page.html"))


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
