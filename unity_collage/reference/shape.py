"""Operators that move elements (reshape, transpose, concatenate, split, repeat), and operators on shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unity_collage.reference.values import Call, Operator, Value, axes_of, plain, whole_numbers

_PAD_MODE: dict[str, Any] = {
    "constant": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}
"""From Relax's names of padding modes to numpy's."""


def reshape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``x`` in row-major order with another shape; 0 keeps a size, and -1 is computed from the others."""
    kept = tuple(x.shape[axis] if size == 0 and x.size else size for axis, size in enumerate(shape))
    return x.reshape(kept)


def _expand_dims(call: Call, x: np.ndarray) -> np.ndarray:
    return np.expand_dims(x, whole_numbers(call.attrs.axis))


def _squeeze(call: Call, x: np.ndarray) -> np.ndarray:
    axis = call.attrs.axis
    return x.squeeze() if axis is None else x.squeeze(axes_of(axis, x.ndim))


def _permute_dims(call: Call, x: np.ndarray) -> np.ndarray:
    axes = call.attrs.axes
    return x.transpose(None if axes is None else whole_numbers(axes))


def _concat(call: Call, tensors: tuple[np.ndarray, ...]) -> np.ndarray:
    axis = call.attrs.axis
    return np.concatenate(tensors, axis=None if axis is None else int(axis))


def _stack(call: Call, tensors: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.stack(tensors, axis=int(call.attrs.axis or 0))


def _split(call: Call, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Parts that are split at the given indices, or equal parts of which the last may be smaller."""
    where, size = call.attrs.indices_or_sections, x.shape[call.attrs.axis]
    if hasattr(where, "value"):
        part = math.ceil(size / int(where))
        cuts = [part * number for number in range(1, int(where))]
    else:
        cuts = list(whole_numbers(where))
    return tuple(np.split(x, cuts, axis=call.attrs.axis))


def _tile(call: Call, x: np.ndarray) -> np.ndarray:
    return np.tile(x, whole_numbers(call.attrs.repeats))


def _repeat(call: Call, x: np.ndarray) -> np.ndarray:
    axis = call.attrs.axis
    return np.repeat(x, int(call.attrs.repeats), axis=None if axis is None else int(axis))


def _flip(call: Call, x: np.ndarray) -> np.ndarray:
    return np.flip(x, int(call.attrs.axis))


def _reverse_sequence(call: Call, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """``x`` with the first ``lengths[b]`` elements of each batch entry reversed."""
    along, batch = int(call.attrs.seq_axis), int(call.attrs.batch_axis)
    result = np.moveaxis(x.copy(), (batch, along), (0, 1))
    for entry, length in zip(result, whole_numbers(lengths), strict=True):
        entry[:length] = entry[:length][::-1].copy()
    return np.moveaxis(result, (0, 1), (batch, along))


def _meshgrid(call: Call, tensors: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.meshgrid(*tensors, indexing=call.attrs.indexing or "ij"))


def pixel_shuffle(x: np.ndarray, factor: int) -> np.ndarray:
    """(..., C*r*r, H, W) to (..., C, H*r, W*r)."""
    *batch, channels, height, width = x.shape
    blocks = x.reshape(*batch, channels // factor**2, factor, factor, height, width)
    first = len(batch)
    order = (*range(first + 1), first + 3, first + 1, first + 4, first + 2)
    return blocks.transpose(order).reshape(*batch, -1, height * factor, width * factor)


def _pixel_shuffle(call: Call, x: np.ndarray) -> np.ndarray:
    return pixel_shuffle(x, int(call.attrs.upscale_factor))


def _pad(call: Call, x: np.ndarray) -> np.ndarray:
    widths = whole_numbers(call.attrs.pad_width)
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    mode = _PAD_MODE[call.attrs.pad_mode]
    if mode != "constant":
        return np.pad(x, pairs, mode=mode)
    return np.pad(x, pairs, constant_values=np.asarray(call.attrs.pad_value).astype(x.dtype))


def _shape_to_tensor(shape: Value) -> np.ndarray:
    return np.array(shape, dtype=np.int64)


def _why_not_pad(call: Call) -> str | None:
    if call.attrs.pad_mode not in _PAD_MODE:
        return f"relax.nn.pad with mode {call.attrs.pad_mode} has no numpy reference"
    return None


OPERATORS: dict[str, Operator] = {
    "relax.reshape": plain(reshape),
    "relax.flatten": plain(np.ravel),
    "relax.nn.batch_flatten": plain(lambda x: x.reshape(len(x), -1)),
    "relax.broadcast_to": plain(np.broadcast_to),
    "relax.expand_dims": Operator(_expand_dims),
    "relax.squeeze": Operator(_squeeze),
    "relax.permute_dims": Operator(_permute_dims),
    "relax.concat": Operator(_concat),
    "relax.stack": Operator(_stack),
    "relax.split": Operator(_split),
    "relax.tile": Operator(_tile),
    "relax.repeat": Operator(_repeat),
    "relax.flip": Operator(_flip),
    "relax.reverse_sequence": Operator(_reverse_sequence),
    "relax.meshgrid": Operator(_meshgrid),
    "relax.nn.pixel_shuffle": Operator(_pixel_shuffle),
    "relax.nn.pad": Operator(_pad, _why_not_pad),
    "relax.shape_of": plain(np.shape),
    "relax.shape_to_tensor": plain(_shape_to_tensor),
    "relax.tensor_to_shape": plain(whole_numbers),
    "relax.size": plain(lambda x: np.asarray(x.size)),
    "relax.inspect.tensor_ndim": plain(np.ndim),
    "relax.inspect.tensor_shape_i": plain(lambda x, axis: x.shape[axis]),
}
