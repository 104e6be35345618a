"""Recurrent operators step by step, by the equations of :mod:`unity_collage.operators`, in double precision."""

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


def _any(call: Call, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``relax.collage.recurrent``: the states of all steps, the last state and the last memory."""
    inputs, weights, state, memory, bias, peepholes, lengths = (x.astype(np.float64) for x in operands)
    steps, batch = inputs.shape[:2]
    result = np.zeros(inputs.shape[:2] + state.shape[-1:])
    state, memory = state.copy(), memory.copy()
    for n in range(batch):
        length = min(max(int(lengths[n]), 0), steps) if call.attrs["has_lengths"] else steps
        for step in reversed(range(length)) if call.attrs["reverse"] else range(length):
            state[n], memory[n] = _next(call, inputs[step, n], weights, state[n], memory[n], bias, peepholes)
            result[step, n] = state[n]
    return result, state, memory


def _next(
    call: Call,
    inputs: np.ndarray,
    weights: np.ndarray,
    state: np.ndarray,
    memory: np.ndarray,
    bias: np.ndarray,
    peepholes: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The state and memory of one sequence after a step."""
    f, g, h = (_options_of(call) * 3)[:3]
    hidden, attrs = state.shape[0], call.attrs
    if attrs["cell"] == "rnn":
        return f(inputs + state @ weights), memory
    if attrs["cell"] == "gru":
        kept, reset = np.split(f(inputs[: 2 * hidden] + state @ weights[:, : 2 * hidden]), 2)
        of_new = weights[:, 2 * hidden :]
        resets_first = attrs["resets_first"]
        product = (reset * state) @ of_new + bias if resets_first else reset * (state @ of_new + bias)
        return (1 - kept) * g(inputs[2 * hidden :] + product) + kept * state, memory
    admitted, shown, forgotten, new = np.split(inputs + state @ weights, 4)
    see_in, see_out, see_forget = np.split(peepholes, 3) if attrs["has_peepholes"] else np.zeros([3, hidden])
    admitted = f(admitted + see_in * memory)
    kept = 1 - admitted if attrs["coupled"] else f(forgotten + see_forget * memory)
    memory = kept * memory + admitted * g(new)
    return f(shown + see_out * memory) * h(memory), memory


def _options_of(call: Call) -> list[Callable[[np.ndarray], np.ndarray]]:
    """The activations, the first of which are applied to clipped sums; that of a memory is not."""
    limit, found = float(call.attrs["clip"]), []
    for position, (name, alpha, beta) in enumerate(
        zip(*(call.attrs[key] for key in ("activations", "alphas", "betas")), strict=True)
    ):
        clips = limit and position < 2
        found.append(_activation(str(name), float(alpha), float(beta), limit if clips else np.inf))
    return found


def _activation(name: str, alpha: float, beta: float, limit: float) -> Callable[[np.ndarray], np.ndarray]:
    made: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        **_FUNCTIONS,
        "Affine": lambda x: alpha * x + beta,
        "Elu": lambda x: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))),
        "HardSigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "LeakyRelu": lambda x: np.where(x >= 0, x, alpha * x),
        "ScaledTanh": lambda x: alpha * np.tanh(beta * x),
        "Softplus": lambda x: np.logaddexp(x, 0),
        "ThresholdedRelu": lambda x: np.where(x > alpha, x, 0),
    }
    return lambda x: made[name](np.clip(x, -limit, limit))


OPERATORS: dict[str, Operator] = {
    "relax.collage.lstm": Operator(_lstm),
    "relax.collage.gru": Operator(_gru),
    "relax.collage.rnn": Operator(_rnn),
    "relax.collage.recurrent": Operator(_any),
}
