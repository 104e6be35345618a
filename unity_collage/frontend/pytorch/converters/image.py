"""Resized images, and samples of images at computed places.

Where Relax's operator has torch's coordinates it is used. Everything else is linear along each axis with weights that
are known here, so it is a product with a constant matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..context import (
    CallRefused,
    Context,
    Converter,
    Converters,
    Value,
    dtype_of,
    known_size,
    rank_of,
    shape_of,
    swapped,
)
from .shape import picked

Expr = relax.Expr
Scale = float | None

_KERNEL = {1: 1.0, 3: 2.0}
"""How far a kernel of this degree reaches."""


def _sizes(cx: Context, x: Expr) -> list[tuple[int, int, int]]:
    """(axis, size, new size) of each axis behind the channels."""
    pairs = zip(shape_of(x)[2:], cx.shape[2:], strict=True)
    return [
        (axis, known_size(old, "the size of an image"), known_size(new, "the size of a resized image"))
        for axis, (old, new) in enumerate(pairs, 2)
    ]


def _steps(sizes: Sequence[tuple[int, int, int]], scales: Sequence[float] | None) -> list[float]:
    """How far the source goes for each step of the result: the given scale counts, not the rounded sizes."""
    if scales is None:
        return [old / new for _, old, new in sizes]
    return [1 / scale for scale in scales]


def _copied(sizes: Sequence[tuple[int, int, int]], steps: Sequence[float]) -> list[float]:
    """``steps`` as torch changes them: an axis is copied where its size stays, whatever its scale is."""
    return [1.0 if old == new else step for (_, old, new), step in zip(sizes, steps, strict=True)]


def _nearest(offset: float) -> Converter:
    """floor((i + offset) step), the source's element of each pixel ``i``.

    On lines and images torch takes the step of the sizes where they stay or double.
    """

    def convert(cx: Context, x: Expr, _size: Value, scales: Sequence[float] | None = None) -> Expr:
        sizes = _sizes(cx, x)
        steps = _steps(sizes, scales)
        if not offset and len(sizes) < 3:
            steps = [
                old / new if new in (old, 2 * old) else step
                for (_, old, new), step in zip(sizes, steps, strict=True)
            ]
        places = [
            np.minimum(
                np.floor((np.arange(new, dtype=np.float32) + np.float32(offset)) * np.float32(step)), old - 1
            )
            for (_, old, new), step in zip(sizes, steps, strict=True)
        ]
        if len(sizes) == 2 and all(
            _is_repeated(index, old, new) for index, (_, old, new) in zip(places, sizes, strict=True)
        ):
            new = [new for _, _, new in sizes]
            return op.image.resize2d(x, tuple(new), None, "NCHW", "nearest_neighbor", "asymmetric", "floor")
        for (axis, _, _), index in zip(sizes, places, strict=True):
            x = picked(cx, x, axis, index)
        return x

    return convert


def _is_repeated(index: np.ndarray, old: int, new: int) -> bool:
    """Whether each element occurs equally often, one after the other."""
    return new % old == 0 and bool((index == np.arange(new) // (new // old)).all())


def _linear(
    cx: Context, x: Expr, _size: Value, align_corners: bool, scales: Sequence[float] | None = None
) -> Expr:
    sizes = _sizes(cx, x)
    steps = _copied(sizes, _steps(sizes, scales))
    is_plain = align_corners or all(
        step == old / new for (_, old, new), step in zip(sizes, steps, strict=True)
    )
    if len(sizes) == 2 and is_plain and all(new > 1 for _, _, new in sizes) and "float" in dtype_of(x):
        mode = "align_corners" if align_corners else "half_pixel"
        return op.image.resize2d(x, tuple(new for _, _, new in sizes), None, "NCHW", "linear", mode)
    return _by_matrices(cx, x, sizes, steps, align_corners, _linear_matrix)


def _cubic(
    cx: Context, x: Expr, _size: Value, align_corners: bool, scales: Sequence[float] | None = None
) -> Expr:
    sizes = _sizes(cx, x)
    return _by_matrices(cx, x, sizes, _steps(sizes, scales), align_corners, _cubic_matrix)


def _by_matrices(
    cx: Context,
    x: Expr,
    sizes: Any,
    steps: Sequence[float],
    align_corners: bool,
    matrix: Callable[..., np.ndarray],
) -> Expr:
    matrices = [
        (axis, matrix(old, _sources(old, new, step, align_corners)))
        for (axis, old, new), step in zip(sizes, steps, strict=True)
    ]
    return _along_axes(cx, x, matrices)


def _along_axes(cx: Context, x: Expr, matrices: Sequence[tuple[int, np.ndarray]]) -> Expr:
    """Products with a matrix along each axis.

    As in Pillow, whose numbers torch has for bytes, integers are rounded after each axis. The last axis is the first.
    """
    if "float" in dtype_of(x):
        for axis, matrix in matrices:
            x = _times(cx, x, axis, matrix)
        return x
    for axis, matrix in reversed(matrices):
        x = _nearest_integers(cx, _times(cx, cx.cast(x, "float32"), axis, matrix), cx.dtype)
    return x


def _nearest_integers(cx: Context, x: Expr, dtype: str) -> Expr:
    ends = np.iinfo(dtype)
    nearest = cx.emit(op.floor(cx.emit(op.add(x, relax.const(0.5, "float32")))))
    return cx.emit(op.astype(cx.emit(op.clip(nearest, float(ends.min), float(ends.max))), dtype))


def _sources(old: int, new: int, step: float, align_corners: bool) -> np.ndarray:
    """The place in the source of each pixel's centre."""
    pixels = np.arange(new)
    if align_corners:
        return pixels * ((old - 1) / (new - 1) if new > 1 else 0.0)
    return (pixels + 0.5) * step - 0.5


def _linear_matrix(size: int, sources: np.ndarray) -> np.ndarray:
    places = np.maximum(sources, 0)
    first = np.minimum(np.floor(places).astype(int), size - 1)
    part = np.clip(places - first, 0, 1)
    matrix = np.zeros([len(places), size])
    np.add.at(matrix, (np.arange(len(places)), first), 1 - part)
    np.add.at(matrix, (np.arange(len(places)), np.minimum(first + 1, size - 1)), part)
    return matrix


def _cubic_matrix(size: int, sources: np.ndarray) -> np.ndarray:
    """Four neighbours with Keys' kernel, a = -0.75 (Keys 1981); places beyond the edge read the edge."""
    first = np.floor(sources).astype(int)
    matrix = np.zeros([len(sources), size])
    for neighbour in range(-1, 3):
        weights = _keys(np.abs(sources - first - neighbour), -0.75)
        np.add.at(matrix, (np.arange(len(sources)), np.clip(first + neighbour, 0, size - 1)), weights)
    return matrix


def _keys(distance: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _antialiased(degree: int) -> Converter:
    """Each pixel is a mean over all that it covers, when the image becomes smaller."""

    def convert(
        cx: Context, x: Expr, _size: Value, align_corners: bool, scales: Sequence[float] | None = None
    ) -> Expr:
        sizes = _sizes(cx, x)
        matrices: list[tuple[int, np.ndarray]] = []
        for (axis, old, new), step in zip(sizes, _copied(sizes, _steps(sizes, scales)), strict=True):
            step = ((old - 1) / (new - 1) if new > 1 else 0.0) if align_corners else step
            matrices.append((axis, _antialiasing_matrix(old, new, step, degree)))
        return _along_axes(cx, x, matrices)

    return convert


def _antialiasing_matrix(old: int, new: int, step: float, degree: int) -> np.ndarray:
    """As Pillow resizes: the kernel is as wide as the step, and its weights are made to sum to one."""
    width = max(step, 1.0)
    matrix = np.zeros([new, old])
    for pixel in range(new):
        centre = step * (pixel + 0.5)
        first = max(int(centre - _KERNEL[degree] * width + 0.5), 0)
        last = min(int(centre + _KERNEL[degree] * width + 0.5), old)
        distance = np.abs((np.arange(first, last) - centre + 0.5) / width)
        weights = np.maximum(1 - distance, 0) if degree == 1 else _keys(distance, -0.5)
        matrix[pixel, first:last] = weights / weights.sum()
    return matrix


def _times(cx: Context, x: Expr, axis: int, matrix: np.ndarray) -> Any:
    """A product with a matrix along an axis."""
    rank, dtype = rank_of(x), dtype_of(x)
    weights = matrix.astype(dtype)
    if axis == rank - 1:
        return cx.emit(op.matmul(x, relax.const(weights.T.copy(), dtype)))
    if axis == rank - 2:
        return cx.emit(op.matmul(relax.const(weights, dtype), x))
    order = [n for n in range(rank) if n != axis] + [axis]
    found = _times(cx, swapped(cx, x, order), rank - 1, matrix)
    return swapped(cx, found, [order.index(n) for n in range(rank)])


_SAMPLING = ("bilinear", "nearest", "bicubic")
_BORDERS = ("zeros", "border", "reflection")


def _grid_sample(cx: Context, x: Expr, grid: Expr, mode: int, border: int, align_corners: bool) -> Expr:
    """``x`` (N, C, H, W) at the places of ``grid`` (N, H', W', 2), which go from -1 to 1."""
    if rank_of(x) != 4:
        raise CallRefused("it samples volumes")
    placed = swapped(cx, grid, [0, 3, 1, 2])
    return op.image.grid_sample(x, placed, _SAMPLING[mode], "NCHW", _BORDERS[border], align_corners)


CONVERTERS: Converters = {
    **{f"upsample_nearest{axes}d.vec": _nearest(0.0) for axes in (1, 2, 3)},
    **{f"_upsample_nearest_exact{axes}d.vec": _nearest(0.5) for axes in (1, 2, 3)},
    "upsample_linear1d.vec": _linear,
    "upsample_bilinear2d.vec": _linear,
    "upsample_trilinear3d.vec": _linear,
    "upsample_bicubic2d.vec": _cubic,
    "_upsample_bilinear2d_aa.vec": _antialiased(1),
    "_upsample_bicubic2d_aa.vec": _antialiased(3),
    "grid_sampler_2d.default": _grid_sample,
}
