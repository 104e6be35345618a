"""All operators that move, select, resample and make elements: the tables of these subjects in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..node import Converted, Node
from . import filling, indexing, layout, padding, resize, scattering, selection, shapes, slicing, sorting

CONVERTERS: Mapping[str, Callable[[Node], Converted]] = {
    **filling.CONVERTERS,
    **indexing.CONVERTERS,
    **layout.CONVERTERS,
    **padding.CONVERTERS,
    **resize.CONVERTERS,
    **scattering.CONVERTERS,
    **selection.CONVERTERS,
    **shapes.CONVERTERS,
    **slicing.CONVERTERS,
    **sorting.CONVERTERS,
}

MICROSOFT: Mapping[str, Callable[[Node], Converted]] = {
    **indexing.MICROSOFT,
    **padding.MICROSOFT,
    **sorting.MICROSOFT,
}
