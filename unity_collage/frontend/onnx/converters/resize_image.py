"""Resize by Relax's resize2d, which backends have kernels for, where it computes the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from ..node import OnnxNode
from .resize_axes import ResizedAxis
from .resize_tables import Interpolation, Table


def as_image(
    node: OnnxNode, method: Interpolation, changed: Sequence[ResizedAxis], tables: Sequence[Table]
) -> relax.Expr | None:
    """resize2d, where it computes the same; None otherwise."""
    spatial = [part.axis for part in changed]
    known = all(isinstance(dim, int) for part in changed for dim in (part.size, part.made))
    if node.rank() != 4 or not set(spatial) <= {2, 3} or not known or node.dtype() != "float32":
        return None
    size = [next((part.made for part in changed if part.axis == axis), node.shape()[axis]) for axis in (2, 3)]
    if not all(isinstance(dim, int) for dim in size):
        return None
    if method.mode == "nearest":
        repeats = all(_repeats(part, table) for part, table in zip(changed, tables, strict=True))
        return (
            relax.op.image.resize2d(
                node[0], tuple(size), None, "NCHW", "nearest_neighbor", "asymmetric", "floor"
            )
            if repeats
            else None
        )
    simple_transforms = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    if method.mode != "linear" or method.transform not in simple_transforms:
        return None
    if (method.antialias and any(_shrinks(part) for part in changed)) or method.excludes_outside:
        return None
    if any(size == 1 for size in size) or not all(_is_of_sizes(part) for part in changed):
        return None
    return relax.op.image.resize2d(node[0], tuple(size), None, "NCHW", "linear", method.transform)


def _repeats(part: ResizedAxis, table: Table) -> bool:
    """Whether all elements are repeated equally often."""
    if not isinstance(part.size, int) or not isinstance(part.made, int) or part.made % part.size:
        return False
    if not isinstance(table.indexes, np.ndarray) or table.inside is not None:
        return False
    return np.array_equal(table.indexes[:, 0], np.arange(part.made) // (part.made // part.size))


def _shrinks(part: ResizedAxis) -> bool:
    return isinstance(part.size, int) and isinstance(part.made, int) and part.made < part.size


def _is_of_sizes(part: ResizedAxis) -> bool:
    """Whether the scale is that of the sizes."""
    if part.scale is None:
        return True
    if not isinstance(part.scale, float) or not isinstance(part.size, int) or not isinstance(part.made, int):
        return False
    return math.isclose(part.scale * part.size, part.made, rel_tol=1e-7)
