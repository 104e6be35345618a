"""TVM's kernel of :mod:`.any_recurrent`: one sequence after another, step by step, on one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, tirx
from tvm.script import tirx as T

from .recurrent_tir import OPAQUE, attrs_of, size_of_kernel, tensor_type

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def kernel(call: relax.Call) -> tirx.PrimFunc:
    """The PrimFunc of a call; its parameters are the operands and the results."""
    cell = str(attrs_of(call)["cell"])
    steps, batch = (size_of_kernel(call.args[0], axis) for axis in (0, 1))
    hidden = size_of_kernel(call.args[1], 0)
    made = _kernel(call, cell, steps, batch, hidden, str(tensor_type(call.args[0]).dtype))
    return made.with_attrs({"op_pattern": OPAQUE, "tirx.is_scheduled": True, "tirx.noalias": True})


def _kernel(call: relax.Call, cell: str, steps: Any, batch: Any, hidden: int, dtype: str) -> tirx.PrimFunc:
    attrs, width = attrs_of(call), _GATES[cell] * hidden
    has_lengths, has_peepholes = bool(attrs["has_lengths"]), bool(attrs["has_peepholes"])
    reverse, resets_first, coupled = (bool(attrs[name]) for name in ("reverse", "resets_first", "coupled"))
    functions = [
        _activation(str(name), float(alpha), float(beta))
        for name, alpha, beta in zip(attrs["activations"], attrs["alphas"], attrs["betas"], strict=True)
    ]
    clipped = _clipped(float(attrs["clip"]))
    f, g, h = (functions * 3)[:3]
    is_lstm, is_gru = cell == "lstm", cell == "gru"
    at_once = 2 * hidden if is_gru and resets_first else width

    def see(value: Any, weight: Any, memory: Any) -> Any:
        return value + weight * memory if has_peepholes else value

    @T.prim_func(private=True)
    def recurrent(
        inputs: T.Buffer((steps, batch, width), dtype),  # pyright: ignore
        weights: T.Buffer((hidden, width), dtype),  # pyright: ignore
        state: T.Buffer((batch, hidden), dtype),  # pyright: ignore
        memory: T.Buffer((batch, hidden), dtype),  # pyright: ignore
        bias: T.Buffer((hidden,), dtype),  # pyright: ignore
        peepholes: T.Buffer((3 * hidden,), dtype),  # pyright: ignore
        lengths: T.Buffer((batch,), "int32"),  # pyright: ignore
        result: T.Buffer((steps, batch, hidden), dtype),  # pyright: ignore
        last: T.Buffer((batch, hidden), dtype),  # pyright: ignore
        last_memory: T.Buffer((batch, hidden), dtype),  # pyright: ignore
    ):
        old = T.alloc_buffer((hidden,), dtype)
        kept = T.alloc_buffer((hidden,), dtype)
        sums = T.alloc_buffer((width,), dtype)
        length = T.alloc_buffer((1,), "int64")
        for n in range(batch):
            length[0] = T.cast(steps, "int64")
            if has_lengths:
                length[0] = tirx.max(
                    tirx.min(T.cast(lengths[n], "int64"), T.cast(steps, "int64")), T.cast(0, "int64")
                )
            for j in range(hidden):
                old[j] = state[n, j]
                kept[j] = memory[n, j]
            for turn in range(steps):
                if T.cast(turn, "int64") < length[0]:
                    for i in range(width):
                        sums[i] = T.cast(0, dtype)
                    for k, i in T.grid(hidden, at_once):
                        sums[i] += weights[k, i] * old[k]
                    if is_gru:
                        for j in range(2 * hidden):
                            sums[j] = f(clipped(sums[j] + inputs[_row(reverse, turn, length[0]), n, j]))
                        if resets_first:
                            for k, j in T.grid(hidden, hidden):
                                sums[2 * hidden + j] += weights[k, 2 * hidden + j] * (
                                    sums[hidden + k] * old[k]
                                )
                            for j in range(hidden):
                                sums[2 * hidden + j] = sums[2 * hidden + j] + bias[j]
                        else:
                            for j in range(hidden):
                                sums[2 * hidden + j] = sums[hidden + j] * (sums[2 * hidden + j] + bias[j])
                        for j in range(hidden):
                            sums[2 * hidden + j] = g(
                                clipped(
                                    sums[2 * hidden + j]
                                    + inputs[_row(reverse, turn, length[0]), n, 2 * hidden + j]
                                )
                            )
                            old[j] = (T.cast(1, dtype) - sums[j]) * sums[2 * hidden + j] + sums[j] * old[j]
                    else:
                        for i in range(width):
                            sums[i] = sums[i] + inputs[_row(reverse, turn, length[0]), n, i]
                    if is_lstm:
                        for j in range(hidden):
                            sums[j] = f(clipped(see(sums[j], peepholes[j], kept[j])))
                            if coupled:
                                sums[2 * hidden + j] = T.cast(1, dtype) - sums[j]
                            else:
                                sums[2 * hidden + j] = f(
                                    clipped(see(sums[2 * hidden + j], peepholes[2 * hidden + j], kept[j]))
                                )
                            sums[3 * hidden + j] = g(clipped(sums[3 * hidden + j]))
                            kept[j] = sums[2 * hidden + j] * kept[j] + sums[j] * sums[3 * hidden + j]
                            sums[hidden + j] = f(
                                clipped(see(sums[hidden + j], peepholes[hidden + j], kept[j]))
                            )
                            old[j] = sums[hidden + j] * h(kept[j])
                    elif not is_gru:
                        for j in range(hidden):
                            old[j] = f(clipped(sums[j]))
                    for j in range(hidden):
                        result[_row(reverse, turn, length[0]), n, j] = old[j]
                else:
                    for j in range(hidden):
                        result[turn, n, j] = T.cast(0, dtype)
            for j in range(hidden):
                last[n, j] = old[j]
                last_memory[n, j] = kept[j]

    return recurrent


def _row(reverse: bool, turn: Any, length: Any) -> Any:
    """The row of the inputs for an iteration: a sequence that goes back begins at its own end."""
    return length - 1 - turn if reverse else turn


def _clipped(limit: float) -> Callable[[Any], Any]:
    if not limit:
        return lambda x: x
    return lambda x: tirx.min(tirx.max(x, _const(-limit, x)), _const(limit, x))


def _const(number: float, like: Any) -> Any:
    return tirx.const(number, like.ty.dtype)


def _activation(name: str, alpha: float, beta: float) -> Callable[[Any], Any]:
    """An activation of ONNX, https://onnx.ai/onnx/operators/onnx__LSTM.html."""

    def c(number: float, like: Any) -> Any:
        return _const(number, like)

    made: dict[str, Callable[[Any], Any]] = {
        "Affine": lambda x: c(alpha, x) * x + c(beta, x),
        "Elu": lambda x: tirx.Select(x >= c(0, x), x, c(alpha, x) * (tirx.exp(x) - c(1, x))),
        "HardSigmoid": lambda x: tirx.max(tirx.min(c(alpha, x) * x + c(beta, x), c(1, x)), c(0, x)),
        "LeakyRelu": lambda x: tirx.Select(x >= c(0, x), x, c(alpha, x) * x),
        "Relu": lambda x: tirx.max(x, c(0, x)),
        "ScaledTanh": lambda x: c(alpha, x) * tirx.tanh(c(beta, x) * x),
        "Sigmoid": tirx.sigmoid,
        "Softplus": lambda x: tirx.max(x, c(0, x)) + tirx.log(c(1, x) + tirx.exp(-tirx.abs(x))),
        "Softsign": lambda x: x / (c(1, x) + tirx.abs(x)),
        "Tanh": tirx.tanh,
        "ThresholdedRelu": lambda x: tirx.Select(x > c(alpha, x), x, c(0, x)),
    }
    return made[name]
