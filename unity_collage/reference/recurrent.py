"""Recurrent operators step by step, by the equations of :mod:`unity_collage.operators.recurrent`, in double
precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from unity_collage.reference.values import Call, Operator


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": _sigmoid,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Tanh": np.tanh,
}


def _lstm(
    call: Call, inputs: np.ndarray, weights: np.ndarray, state: np.ndarray, memory: np.ndarray
) -> np.ndarray:
    f, g, h = _functions(call)
    weights, memory = weights.astype(np.float64), memory.astype(np.float64)
    result = np.empty(inputs.shape[:2] + state.shape[-1:])
    for step in _steps(call, inputs):
        admitted, shown, kept, new = np.split(inputs[step] + state @ weights, 4, axis=-1)
        memory = f(kept) * memory + f(admitted) * g(new)
        state = result[step] = f(shown) * h(memory)
    return np.concatenate([result, memory[None]]) if call.attrs["keeps_memory"] else result


def _gru(
    call: Call, inputs: np.ndarray, weights: np.ndarray, state: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    f, g = _functions(call)
    hidden = state.shape[-1]
    of_gates, of_new = np.split(weights.astype(np.float64), [2 * hidden], axis=-1)
    result = np.empty(inputs.shape[:2] + state.shape[-1:])
    for step in _steps(call, inputs):
        of_kept, of_reset, new = np.split(inputs[step], 3, axis=-1)
        kept, reset = np.split(f(np.concatenate([of_kept, of_reset], axis=-1) + state @ of_gates), 2, axis=-1)
        if call.attrs["resets_first"]:
            new = g(new + (reset * state) @ of_new + bias)
        else:
            new = g(new + reset * (state @ of_new + bias))
        state = result[step] = (1 - kept) * new + kept * state
    return result


def _rnn(call: Call, inputs: np.ndarray, weights: np.ndarray, state: np.ndarray) -> np.ndarray:
    (f,) = _functions(call)
    weights = weights.astype(np.float64)
    result = np.empty(inputs.shape[:2] + state.shape[-1:])
    for step in _steps(call, inputs):
        state = result[step] = f(inputs[step] + state @ weights)
    return result


def _functions(call: Call) -> list[Callable[[np.ndarray], np.ndarray]]:
    return [_FUNCTIONS[str(name)] for name in call.attrs["activations"]]


def _steps(call: Call, inputs: np.ndarray) -> Iterator[int]:
    steps = range(len(inputs))
    return iter(reversed(steps) if call.attrs["reverse"] else steps)


OPERATORS: dict[str, Operator] = {
    "relax.collage.lstm": Operator(_lstm),
    "relax.collage.gru": Operator(_gru),
    "relax.collage.rnn": Operator(_rnn),
}
