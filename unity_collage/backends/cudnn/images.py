"""Images of one to three spatial dims. cuDNN has engines for two and three: a row is an image of height 1."""

from __future__ import annotations

from dataclasses import replace

from ..native.program import View
from ..onednn.windows import Window


def as_plane(view: View) -> View:
    """(N, C, W) -> (N, C, 1, W); other views stay as they are."""
    if len(view.dims) != 3:
        return view
    (batch, channels, width), (outer, inner, step) = view.dims, view.strides
    return replace(view, dims=(batch, channels, 1, width), strides=(outer, inner, width * step, step))


def window_of_plane(window: Window) -> Window:
    """The window of an image of height 1 for that of a row; other windows stay as they are."""
    if len(window.strides) != 1:
        return window
    return Window((1, *window.strides), (0, *window.dilates), (0, *window.padding_l), (0, *window.padding_r))
