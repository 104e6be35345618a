"""Arithmetic: the tables of these subjects in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..node import Converted, Node
from . import activations, argmax, arithmetic, binary, bounds, casts, reductions, scans, softmax, unary

CONVERTERS: Mapping[str, Callable[[Node], Converted]] = {
    **activations.CONVERTERS,
    **argmax.CONVERTERS,
    **arithmetic.CONVERTERS,
    **binary.CONVERTERS,
    **bounds.CONVERTERS,
    **casts.CONVERTERS,
    **reductions.CONVERTERS,
    **scans.CONVERTERS,
    **softmax.CONVERTERS,
    **unary.CONVERTERS,
}

MICROSOFT: Mapping[str, Callable[[Node], Converted]] = activations.MICROSOFT
