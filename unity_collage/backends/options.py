"""Options of a backend's library, written behind its name: ``openvino:NUM_STREAMS=1:PERFORMANCE_HINT=LATENCY``.

A backend may be named so wherever one is named: ``backends``, ``--backends`` and the ``libs`` of a target. Each kernel
carries the options of its backend, so that it is measured and built with them, and its cost holds for them only.
"""

from __future__ import annotations

from ..errors import CollageError


def split(text: str) -> tuple[str, dict[str, str]]:
    """The name of a backend and its options; raises CollageError for options without a value."""
    name, *parts = text.split(":")
    options: dict[str, str] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or not equals or key in options:
            raise CollageError(
                f"{text!r}: write the options of a backend as {name}:KEY=VALUE:KEY=VALUE, each key once"
            )
        options[key] = value
    return name.strip(), options


def name_of(text: str) -> str:
    """The name of a backend without its options."""
    return text.partition(":")[0].strip()
