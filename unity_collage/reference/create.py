"""Operators that make tensors from shapes and numbers, and triangular parts of tensors."""

from __future__ import annotations

import numpy as np

from unity_collage.reference.values import Call, Operator, Value, dtype_of


def _full(call: Call, shape: tuple[int, ...], value: Value) -> np.ndarray:
    return np.full(shape, np.asarray(value).reshape(()), dtype=dtype_of(call.ty))


def _full_like(call: Call, x: np.ndarray, value: Value) -> np.ndarray:
    return _full(call, x.shape, value)


def _eye(call: Call, rows: int, columns: int, diagonal: int) -> np.ndarray:
    return np.eye(int(rows), int(columns), int(diagonal), dtype=dtype_of(call.ty))


def _eye_like(call: Call, x: np.ndarray, diagonal: int) -> np.ndarray:
    return _eye(call, x.shape[0], x.shape[1], diagonal)


def _arange(call: Call, start: float, end: float, step: float) -> np.ndarray:
    return np.arange(start, end, step, dtype=dtype_of(call.ty))


def _hamming_window(call: Call, size: int, periodic: int, alpha: float, beta: float) -> np.ndarray:
    turns = np.arange(size) / (size if periodic else size - 1)
    return alpha - beta * np.cos(2 * np.pi * turns)


OPERATORS: dict[str, Operator] = {
    "relax.full": Operator(_full),
    "relax.full_like": Operator(_full_like),
    "relax.zeros": Operator(lambda call, shape: _full(call, shape, 0)),
    "relax.zeros_like": Operator(lambda call, x: _full(call, x.shape, 0)),
    "relax.ones": Operator(lambda call, shape: _full(call, shape, 1)),
    "relax.ones_like": Operator(lambda call, x: _full(call, x.shape, 1)),
    "relax.eye": Operator(_eye),
    "relax.eye_like": Operator(_eye_like),
    "relax.arange": Operator(_arange),
    "relax.tril": Operator(lambda _call, x, diagonal: np.tril(x, int(diagonal))),
    "relax.triu": Operator(lambda _call, x, diagonal: np.triu(x, int(diagonal))),
    "relax.hamming_window": Operator(_hamming_window),
}
