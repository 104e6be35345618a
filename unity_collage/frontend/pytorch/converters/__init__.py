"""The converters of ATen operators, a file for each kind of them."""

from __future__ import annotations

from ..context import Converters
from . import (
    binary,
    convolution,
    create,
    elementwise,
    image,
    index,
    linear,
    moves,
    normalization,
    pooling,
    quantised,
    recurrent,
    reduce,
    scans,
    scatter,
    shape,
    sort,
)

CONVERTERS: Converters = {
    **elementwise.CONVERTERS,
    **binary.CONVERTERS,
    **reduce.CONVERTERS,
    **scans.CONVERTERS,
    **shape.CONVERTERS,
    **moves.CONVERTERS,
    **index.CONVERTERS,
    **scatter.CONVERTERS,
    **create.CONVERTERS,
    **sort.CONVERTERS,
    **linear.CONVERTERS,
    **convolution.CONVERTERS,
    **pooling.CONVERTERS,
    **normalization.CONVERTERS,
    **image.CONVERTERS,
    **recurrent.CONVERTERS,
    **quantised.CONVERTERS,
}
"""By operator and overload; operators that are not ATen's have their namespace."""

MOVES: frozenset[str] = frozenset(
    (
        *shape.CONVERTERS,
        *moves.CONVERTERS,
        *index.CONVERTERS,
        *scatter.CONVERTERS,
        *create.CONVERTERS,
        *sort.CONVERTERS,
    )
)
"""Operators that only move elements, or make them: they need no wider type to compute in."""
