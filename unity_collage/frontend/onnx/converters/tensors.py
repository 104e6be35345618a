"""All operators that move, select, resample and make elements: the tables of these subjects in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..node import Converted, OnnxNode
from . import (
    col2im,
    filling,
    grid_sample,
    indexing,
    layout,
    padding,
    regions,
    resize,
    scattering,
    selection,
    shapes,
    signal,
    slicing,
    sorting,
)

CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    **col2im.CONVERTERS,
    **filling.CONVERTERS,
    **grid_sample.CONVERTERS,
    **indexing.CONVERTERS,
    **layout.CONVERTERS,
    **padding.CONVERTERS,
    **regions.CONVERTERS,
    **resize.CONVERTERS,
    **scattering.CONVERTERS,
    **selection.CONVERTERS,
    **shapes.CONVERTERS,
    **signal.CONVERTERS,
    **slicing.CONVERTERS,
    **sorting.CONVERTERS,
}

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {
    **grid_sample.MICROSOFT,
    **indexing.MICROSOFT,
    **padding.MICROSOFT,
    **sorting.MICROSOFT,
}
