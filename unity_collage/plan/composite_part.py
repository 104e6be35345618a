"""Parts of kernels that a backend wants as functions of their own, as plain data."""

from __future__ import annotations

from typing import NamedTuple


class CompositePart(NamedTuple):
    """A part of a kernel that its backend wants as a function of its own."""

    label: str
    indexes: tuple[int, ...]
