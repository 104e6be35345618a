"""Docstrings of the sources as Markdown, for the API reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
_PAGE = re.compile(r"\bdocs/(\w+)\.md\b")
_PART = re.compile(r"^(Reads|Writes|Keeps|Takes|Declines|Needs) {2,}", re.MULTILINE)


class AsMarkdown(griffe.Extension):
    """Turn roles of Sphinx into code, and the Reads, Writes and Keeps of a pass into a list."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            text = _PAGE.sub(r"[\g<0>](../\1.md)", text)
            obj.docstring.value = _PART.sub(r"* *\1* ", text)
