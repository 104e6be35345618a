"""Operators that read or write by index: take, slices, gathers, scatters, one-hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from unity_collage.graph.shapes import extents_of
from unity_collage.reference.tir_expr import evaluate
from unity_collage.reference.values import Call, Operator, Value, plain

_NUMPY_MODE: dict[str, Any] = {"fast": "raise", "wrap": "wrap", "clip": "clip"}
_ACCUMULATE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _take(call: Call, x: np.ndarray, indices: Value) -> np.ndarray:
    """Slices along an axis, or elements of the flattened tensor; mode "fast" promises indices in bounds."""
    axis, picked = call.attrs.axis, np.asarray(indices)
    mode = _NUMPY_MODE[call.attrs.mode]
    return np.asarray(np.take(x, picked, axis=None if axis is None else int(axis), mode=mode))


def _why_not_take(call: Call) -> str | None:
    if call.attrs.mode not in _NUMPY_MODE:
        return f"relax.take with mode {call.attrs.mode} has no numpy reference"
    return None


def _strided_slice(x: np.ndarray, axes: Value, begin: Value, end: Value, strides: Value = None) -> np.ndarray:
    cuts = [slice(None)] * x.ndim
    steps = (1,) * len(axes) if strides is None else strides
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        cuts[int(axis)] = slice(int(first), int(last), int(step))
    return x[tuple(cuts)]


def _dynamic_strided_slice(x: np.ndarray, begin: Value, end: Value, strides: Value) -> np.ndarray:
    return _strided_slice(x, range(x.ndim), begin, end, strides)


def _gather_elements(call: Call, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """For each index the element at the same place, except for the index along one axis; other axes may be shorter."""
    axis = int(call.attrs.axis)
    return x[_places(x, indices, axis)]


def _places(x: np.ndarray, indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    grid = list(np.ix_(*(np.arange(size) for size in indices.shape)))
    grid[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    return tuple(grid)


def _gather_nd(call: Call, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The sub-tensors at the multi-indices in the last axis of ``indices``."""
    batch = int(call.attrs.batch_dims)
    picked = tuple(np.moveaxis(indices, -1, 0))
    own = np.ix_(*(np.arange(size) for size in x.shape[:batch]))
    spread = (1,) * (indices.ndim - 1 - batch)
    return x[(*(axis.reshape(*axis.shape, *spread) for axis in own), *picked)]


def _scattered(x: np.ndarray, where: tuple, updates: np.ndarray, how: str) -> np.ndarray:
    """A copy of ``x`` with ``updates`` written to, or accumulated into, the places ``where``."""
    result = x.copy()
    if how == "mean":
        return _scattered_mean(x, where, updates)
    if how in _ACCUMULATE:
        _ACCUMULATE[how].at(result, where, updates)
    else:
        result[where] = updates
    return result


def _scattered_mean(x: np.ndarray, where: tuple, updates: np.ndarray) -> np.ndarray:
    total, count = x.astype(np.float64), np.ones(x.shape)
    np.add.at(total, where, updates)
    np.add.at(count, where, 1)
    return total / count


def _scatter_elements(call: Call, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    return _scattered(x, _places(x, indices, int(call.attrs.axis)), updates, call.attrs.reduction)


def _scatter_nd(call: Call, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    return _scattered(x, tuple(np.moveaxis(indices, -1, 0)), updates, call.attrs.reduction)


def _slice_scatter(call: Call, x: np.ndarray, source: np.ndarray, *cut: Value) -> np.ndarray:
    where = [slice(None)] * x.ndim
    where[call.attrs.axis] = slice(*(int(bound) for bound in cut))
    return _scattered(x, tuple(where), source, "update")


def _index_put(call: Call, x: np.ndarray, indices: Value, values: np.ndarray) -> np.ndarray:
    where = indices if isinstance(indices, tuple) else (indices,)
    return _scattered(x, where, values, "add" if call.attrs.accumulate else "update")


def _one_hot(call: Call, indices: np.ndarray, on: float, off: float) -> np.ndarray:
    """A new axis of size ``depth`` that is ``on`` at the index and ``off`` elsewhere."""
    hot = np.expand_dims(indices, -1) == np.arange(call.attrs.depth)
    return np.moveaxis(np.where(hot, on, off), -1, call.attrs.axis)


def _layout_transform(call: Call, x: np.ndarray) -> np.ndarray:
    """Each element moved by an index map; all other places have the pad value."""
    attrs, shape = call.attrs, extents_of(call)
    grids = dict(zip(attrs.index_map.initial_indices, np.ix_(*map(np.arange, x.shape)), strict=True))
    result = np.full(shape, 0 if attrs.pad_value is None else attrs.pad_value.value, x.dtype)
    result[tuple(evaluate(place, grids) for place in attrs.index_map.final_indices)] = x
    return result


def _bucketize(call: Call, x: np.ndarray, boundaries: np.ndarray) -> np.ndarray:
    return np.searchsorted(boundaries, x, side="right" if call.attrs.right else "left")


OPERATORS: dict[str, Operator] = {
    "relax.take": Operator(_take, _why_not_take),
    "relax.strided_slice": plain(_strided_slice),
    "relax.dynamic_strided_slice": plain(_dynamic_strided_slice),
    "relax.gather_elements": Operator(_gather_elements),
    "relax.gather_nd": Operator(_gather_nd),
    "relax.scatter_elements": Operator(_scatter_elements),
    "relax.scatter_nd": Operator(_scatter_nd),
    "relax.slice_scatter": Operator(_slice_scatter),
    "relax.index_tensor": plain(lambda x, indices: x[tuple(indices)]),
    "relax.index_put": Operator(_index_put),
    "relax.layout_transform": Operator(_layout_transform),
    "relax.one_hot": Operator(_one_hot),
    "relax.bucketize": Operator(_bucketize),
    "relax.nonzero": plain(lambda x: np.stack(np.nonzero(np.atleast_1d(x)))),
}
