"""Recurrent operators of ONNX by torch functions."""

from __future__ import annotations

import torch  # pyright: ignore[reportMissingImports]

from .call import Call, Value

_ORDER = (0, 2, 3, 1)
"""The gates of torch (input, forget, cell, output) among those of ONNX (input, output, forget, cell)."""


def lstm(call: Call, x: Value, *operands: Value) -> tuple[Value, Value, Value]:
    """Sequence first; weights have to be constants. Raises ModelError for what ``torch.lstm`` lacks."""
    unusual = {"activations", "clip", "input_forget", "layout"} & call.attributes.keys()
    direction = call.attributes.get("direction", "forward")
    if unusual or direction == "reverse" or call.has(4) or call.has(7):
        raise call.lacks("with lengths, peepholes, one backward direction, or attributes of its own")
    directions = 2 if direction == "bidirectional" else 1
    length, batch, _ = call.shape()
    hidden = call.attributes["hidden_size"]
    weights = [part for index in range(directions) for part in _weights(call, index, hidden)]
    states = [
        operands[place - 1] if call.has(place) else torch.zeros(directions, batch, hidden) for place in (5, 6)
    ]
    found = torch.lstm(x, states, weights, True, 1, 0.0, False, directions == 2, False)
    result = found[0].reshape(length, batch, directions, hidden).permute(0, 2, 1, 3)
    return result, found[1], found[2]


def _weights(call: Call, direction: int, hidden: int) -> list[torch.Tensor]:
    """Weights of inputs and of states, and the bias of each, in the order of torch."""

    def ordered(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor[gate * hidden : (gate + 1) * hidden] for gate in _ORDER])

    inputs, states = (ordered(call.constant(place)[direction]) for place in (1, 2))
    if not call.has(3):
        return [inputs, states, torch.zeros(4 * hidden), torch.zeros(4 * hidden)]
    bias = call.constant(3)[direction]
    return [inputs, states, ordered(bias[: 4 * hidden]), ordered(bias[4 * hidden :])]
