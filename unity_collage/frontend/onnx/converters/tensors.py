"""All operators that move, select, resample and make elements: the tables of these subjects in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..node import Converted, Node
from . import indexing, layout, padding, scattering, shapes, slicing

CONVERTERS: Mapping[str, Callable[[Node], Converted]] = {
    **indexing.CONVERTERS,
    **layout.CONVERTERS,
    **padding.CONVERTERS,
    **scattering.CONVERTERS,
    **shapes.CONVERTERS,
    **slicing.CONVERTERS,
}

MICROSOFT: Mapping[str, Callable[[Node], Converted]] = {
    **indexing.MICROSOFT,
    **padding.MICROSOFT,
}
