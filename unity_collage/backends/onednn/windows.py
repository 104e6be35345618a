"""Layout letters and sliding windows of convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..native.program import View
from ..native.values import ints, static_shape, view_of
from ..native.views import row_major


@dataclass(frozen=True, slots=True)
class Window:
    """One number for each spatial dim; ``dilates`` counts the gaps between taps, so 0 is a dense kernel."""

    strides: tuple[int, ...]
    dilates: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]


def window_of(spatial: int, strides: Any, padding: Any, dilation: Any) -> Window:
    """The window of Relax's attributes. Each may be one number for all dims, and padding may be for both sides."""
    before, after = _sides(spatial, ints(padding))
    return Window(
        _each(spatial, ints(strides)), tuple(d - 1 for d in _each(spatial, ints(dilation))), before, after
    )


def by_letters(value: Any, layout: str, leading: str, rank: int) -> View | str:
    """A tensor of ``layout`` as a view with the dims of the ``leading`` letters first, then the spatial dims in
    order."""
    wanted = leading + "DHW"[5 - rank :]
    if sorted(layout) != sorted(wanted):
        return f"layout {layout} is not a permutation of {wanted}"
    shape = static_shape(value)
    axes = [layout.index(letter) for letter in wanted]
    strides = row_major(shape)
    return view_of(value, [shape[axis] for axis in axes], [strides[axis] for axis in axes])


def _each(spatial: int, values: Sequence[int]) -> tuple[int, ...]:
    return tuple(values) * (spatial if len(values) == 1 else 1)


def _sides(spatial: int, padding: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if len(padding) == 2 * spatial:
        return tuple(padding[:spatial]), tuple(padding[spatial:])
    both = _each(spatial, padding)
    return both, both
