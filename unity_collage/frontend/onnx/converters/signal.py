"""DFT, STFT and MelWeightMatrix.

The transforms are products with a matrix of cosines and sines, where the lengths are known and the matrix is small.
Otherwise they are sums over a table of as many cosines and sines as the signal is long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..arrays import dtype_of
from ..equal_sizes import require_shape
from ..node import Converted, OnnxNode
from ..values import Dim
from .runtime_shapes import (
    as_int64,
    computed,
    dtype_of_expr,
    fixed,
    intrinsics,
    product,
    run_time_sizes,
    scalar,
    simple,
)

_MOST = 1 << 22
"""The most elements of a matrix that is made here."""


@dataclass(frozen=True, slots=True)
class _Transform:
    """A transform of signals of shape (batch, read, parts), where a part is the real or the imaginary one."""

    length: Dim
    """The period of the transform."""
    inverse: bool
    onesided: bool

    @property
    def is_real_inverse(self) -> bool:
        """Whether half a spectrum gives a real signal."""
        return self.inverse and self.onesided

    @property
    def made(self) -> Dim:
        """The size of the result."""
        return simple(self.length // 2 + 1) if self.onesided and not self.inverse else self.length

    @property
    def used(self) -> Dim:
        """How many elements of the signal are read at most; a shorter one is followed by zeros."""
        return simple(self.length // 2 + 1) if self.is_real_inverse else self.length

    @property
    def parts(self) -> int:
        """How many parts the result has."""
        return 1 if self.is_real_inverse else 2


def _dft(node: OnnxNode) -> Converted:
    parts = node.shape()[-1]
    if parts not in (1, 2):
        node.refuse(f"its last size is {parts}, not 1 (real) or 2 (complex)")
    inverse, onesided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    by_operand = node.version >= 20 and node.has(2)
    axis = None
    if by_operand and node.value(2).known is None:
        split = _split_at_run_time(node)
    else:
        given = int(node.needed(2, "its axis").reshape(-1)[0]) if by_operand else None
        axis = node.axis(node.attribute("axis", 1 if node.version < 20 else -2) if given is None else given)
        shape = node.shape()
        split = [product(shape[:axis]), shape[axis], product(shape[axis + 1 : -1])]
    own = split[1]
    length = node.size(1) if node.has(1) else (simple((own - 1) * 2) if inverse and onesided else own)
    transform = _Transform(length, inverse, onesided)
    outer, _, inner = split
    moved = node.emit(relax.op.permute_dims(node.reshaped(node[0], [*split, parts]), [0, 2, 1, 3]))
    signal = node.reshaped(moved, [simple(outer * inner), own, parts])
    found = node.reshaped(
        _transformed(node, signal, transform, "float64"), [outer, inner, transform.made, transform.parts]
    )
    back = node.emit(relax.op.permute_dims(found, [0, 2, 1, 3]))
    if by_operand and node.value(2).known is None:
        sizes = run_time_sizes(node, _with_size, _int64(node, 2), node.shape()[:-1], transform.made)
    else:
        sizes = [transform.made if n == axis else size for n, size in enumerate(node.shape()[:-1])]
    return relax.op.reshape(back, relax.ShapeExpr([*sizes, transform.parts]))


def _int64(node: OnnxNode, position: int) -> relax.Expr:
    return node.cast(node[position], "int64")


def _split_at_run_time(node: OnnxNode) -> list[Dim]:
    """The sizes before an axis that an operand gives, of the axis, and after it, without the last."""

    def elements(axis: te.Tensor, shape: list[Any]) -> list[Any]:
        at = _axis(axis, len(shape) + 1)
        before, own, after = as_int64(1), as_int64(1), as_int64(1)
        for n, size in enumerate(shape):
            before = before * tirx.Select(at > n, as_int64(size), as_int64(1))
            own = own * tirx.Select(at == n, as_int64(size), as_int64(1))
            after = after * tirx.Select(at < n, as_int64(size), as_int64(1))
        return [before, own, after]

    return run_time_sizes(node, elements, _int64(node, 2), node.shape()[:-1])


def _axis(axis: te.Tensor, rank: int) -> Any:
    given = scalar(axis)
    return tirx.Select(given < 0, given + rank, given)


def _with_size(axis: te.Tensor, shape: list[Any], made: Any) -> list[Any]:
    at = _axis(axis, len(shape) + 1)
    return [tirx.Select(at == n, as_int64(made), as_int64(size)) for n, size in enumerate(shape)]


def _transformed(node: OnnxNode, signal: relax.Expr, transform: _Transform, wide: str) -> relax.Expr:
    """The transform of a variable of shape (batch, read, parts): a variable of shape (batch, made, parts).

    It is computed in the element type ``wide``.
    """
    batch, read, parts = node.dims(signal)
    dtype = dtype_of_expr(signal)
    length, known = transform.length, isinstance(transform.length, int) and isinstance(read, int)
    signal = node.cast(signal, wide)
    if known and read * fixed(parts) * fixed(transform.made) * transform.parts <= _MOST:
        if read == 0 or length == 0:
            node.refuse("it transforms a signal without elements")
        matrix = node.constant(_matrix(transform, fixed(read), fixed(parts)), wide)
        flat = node.reshaped(signal, [batch, read * parts])
        found = node.emit(relax.op.matmul(flat, matrix))
        found = node.reshaped(found, [batch, transform.made, transform.parts])
    else:
        sizes = [batch, transform.made, transform.parts]
        read_ = simple(tirx.min(as_int64(read), as_int64(transform.used)))
        found = computed(node, _summed, signal, length, read_, sizes, transform.inverse, transform.onesided)
    return node.cast(found, dtype)


def _matrix(transform: _Transform, read: int, parts: int) -> np.ndarray:
    """(read and parts, made and parts): what each element of a signal adds to each of the result."""
    length, made, used = fixed(transform.length), fixed(transform.made), fixed(transform.used)
    here, there = np.arange(read)[:, None], np.arange(made)[None, :]
    angle = 2 * math.pi * ((here * there) % length) / length
    factor = np.where(here < used, 1.0, 0.0)
    if transform.inverse:
        factor = factor / length
    if transform.is_real_inverse:
        factor = factor * np.where((here == 0) | (2 * here == length), 1.0, 2.0)
    cosine, sine = np.cos(angle) * factor, np.sin(angle) * (factor if transform.inverse else -factor)
    # (c + i s) (re + i im) = (c re - s im) + i (s re + c im)
    rows = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
    return rows[:, :parts, :, : transform.parts].reshape(read * parts, made * transform.parts)


def _summed(
    signal: te.Tensor, length: Any, read: Any, sizes: list[Any], inverse: bool, onesided: bool
) -> te.Tensor:
    dtype, parts, period = signal.dtype, fixed(signal.shape[2]), as_int64(length)

    def turn(n: Any) -> Any:
        return n.astype("float64") * (2.0 * math.pi) / period.astype("float64")

    cosines = te.compute((length,), lambda n: intrinsics.cos(turn(n)).astype(dtype), name="cosines")
    sines = te.compute((length,), lambda n: intrinsics.sin(turn(n)).astype(dtype), name="sines")
    at = te.reduce_axis((0, read), "at")

    def term(n: Any, k: Any, part: Any) -> Any:
        place = tirx.floormod(as_int64(at.var) * as_int64(k), period)
        cosine, sine = cosines(place), (sines(place) if inverse else -sines(place))
        real = signal(n, at, 0)
        found = tirx.Select(part == 0, cosine * real, sine * real)
        if parts == 2:
            imaginary = signal(n, at, 1)
            found = found + tirx.Select(part == 0, -sine * imaginary, cosine * imaginary)
        if inverse and onesided:
            middle = tirx.any(at.var == 0, as_int64(at.var) * 2 == period)
            found = tirx.Select(middle, found, found * 2.0)
        return found

    total = te.compute(sizes, lambda n, k, part: te.sum(term(n, k, part), axis=at), name="dft")
    if not inverse:
        return total
    return te.compute(sizes, lambda *place: total(*place) / period.astype(dtype), name="inverse_dft")


def _stft(node: OnnxNode) -> Converted:
    batch, size, parts = node.shape() if node.rank() == 3 else [*node.shape(), 1]
    if parts not in (1, 2):
        node.refuse(f"its last size is {parts}, not 1 (real) or 2 (complex)")
    step = node.size(1)
    if node.has(3):
        length: Dim = node.size(3)
    else:
        length = node.shape(2)[0] if node.has(2) else size
    if node.has(2):
        require_shape(node, "its window", node.shape(2), [length])
    frames = simple((size - length) // step + 1)
    if isinstance(frames, int) and frames <= 0:
        node.refuse(f"its frames of {length} elements are longer than the signal of {size}")
    signal = node.reshaped(node[0], [batch, size, parts])
    windows = [node.cast(node[2], node.dtype())] if node.has(2) else []

    def framed(signal: te.Tensor, sizes: list[Any], step: Any, frames: Any, *windows: te.Tensor) -> te.Tensor:
        def element(row: Any, at: Any, part: Any) -> Any:
            n, frame = tirx.floordiv(row, as_int64(frames)), tirx.floormod(row, as_int64(frames))
            value = signal(n, frame * as_int64(step) + at, part)
            return value * windows[0](at) if windows else value

        return te.compute(sizes, element, name="frames")

    rows = computed(node, framed, signal, [simple(batch * frames), length, parts], step, frames, *windows)
    transform = _Transform(length, False, bool(node.attribute("onesided", 1)))
    # Spectra of audio need no more than float32, which is twice as fast.
    wide = "float64" if node.dtype() == "float64" else "float32"
    found = _transformed(node, rows, transform, wide)
    return relax.op.reshape(found, relax.ShapeExpr([batch, frames, transform.made, 2]))


def _mel_weight_matrix(node: OnnxNode) -> Converted:
    """Triangles between bins that are equally far from each other on the mel scale, (spectrum bins, mel bins)."""
    bands, length = node.size(0), node.size(1)
    dtype = dtype_of(node.attribute("output_datatype", 1))

    def weights(bands: Any, length: Any, rate: te.Tensor, low: te.Tensor, high: te.Tensor) -> te.Tensor:
        def mel(hertz: te.Tensor) -> Any:
            return 2595.0 * intrinsics.log(1.0 + scalar(hertz).astype("float64") / 700.0) / math.log(10.0)

        first, last = mel(low), mel(high)
        step = (last - first) / (as_int64(bands) + 2).astype("float64")

        def bin_of(n: Any) -> Any:
            hertz = 700.0 * (
                intrinsics.exp((n.astype("float64") * step + first) / 2595.0 * math.log(10.0)) - 1.0
            )
            place = (as_int64(length) + 1).astype("float64") * hertz
            return intrinsics.floor(place / scalar(rate).astype("float64")).astype("int64")

        bins = te.compute((simple(bands + 2),), bin_of, name="bins")

        def element(j: Any, band: Any) -> Any:
            left, centre, right = bins(band), bins(band + 1), bins(band + 2)
            place = as_int64(j)
            rise = (place - left).astype("float64") / tirx.max(centre - left, as_int64(1)).astype("float64")
            fall = (right - place).astype("float64") / tirx.max(right - centre, as_int64(1)).astype("float64")
            one, zero = tirx.const(1, "float64"), tirx.const(0, "float64")
            up = tirx.Select(tirx.all(place >= left, place <= centre), rise, zero)
            peak = tirx.Select(place == centre, one, zero)
            rising = tirx.Select(centre == left, peak, up)
            falling = tirx.all(place >= centre, place < right)
            return tirx.Select(falling, fall, rising).astype(dtype)

        return te.compute((simple(as_int64(length) // 2 + 1), bands), element, name="mel_weights")

    return node.builder.call_te(weights, bands, length, node[2], node[3], node[4])


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "DFT": _dft,
    "MelWeightMatrix": _mel_weight_matrix,
    "STFT": _stft,
}
