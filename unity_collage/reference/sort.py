"""Stable sorting: equal elements keep their order, so that indices are the same everywhere."""

from __future__ import annotations

import numpy as np

from unity_collage.reference.values import Call, Operator, Value


def order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The indices that sort an axis."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    turned = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(turned, axis)


def _argsort(call: Call, x: np.ndarray) -> np.ndarray:
    return order(x, call.attrs.axis, bool(call.attrs.descending))


def _sort(call: Call, x: np.ndarray) -> np.ndarray:
    return np.take_along_axis(x, _argsort(call, x), axis=call.attrs.axis)


def _topk(call: Call, x: np.ndarray) -> Value:
    axis = call.attrs.axis
    count = call.attrs.k if call.attrs.k > 0 else x.shape[axis]
    indices = np.take(order(x, axis, bool(call.attrs.largest)), range(min(count, x.shape[axis])), axis=axis)
    values = np.take_along_axis(x, indices, axis=axis)
    return {"both": (values, indices), "values": values, "indices": indices}[call.attrs.ret_type]


OPERATORS: dict[str, Operator] = {
    "relax.argsort": Operator(_argsort),
    "relax.sort": Operator(_sort),
    "relax.topk": Operator(_topk),
}
