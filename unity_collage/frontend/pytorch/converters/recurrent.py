"""LSTM, GRU and RNN as the operators of :mod:`unity_collage.operators`, a call for each layer and direction.

Our operators have the equations and the order of gates of ONNX, torch has its own order. The inputs of all steps are
multiplied by their weights in one product.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from .... import operators
from ..context import CallRefused, Context, Converter, Converters, Value, known_size, shape_of, swapped
from .shape import parts_of, selected, sliced

Expr = relax.Expr

_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
"""The place of each of our gates in torch: i, o, f, c in its i, f, c, o; z, r, h in its r, z, h."""


@dataclass(frozen=True, slots=True)
class _Direction:
    """One layer in one direction: its weights in the order of our gates."""

    cell: str
    activations: tuple[str, ...]
    is_reverse: bool
    weights: Sequence[Expr]
    """Of the input, of the state, and their biases if it has them."""
    projection: Expr | None = None
    """The matrix that makes the state of its own hidden vector, if it has one (``proj_size``)."""

    def states(self, cx: Context, x: Expr, state: Expr, memory: Expr | None, keeps_memory: bool) -> Any:
        """The states of all steps (steps, batch, hidden), and one row more for the last memory."""
        of_input, of_state = (_reordered(cx, self.cell, weight) for weight in self.weights[:2])
        biases = [_reordered(cx, self.cell, bias) for bias in self.weights[2:]]
        products = op.matmul(x, op.permute_dims(of_input))
        options: dict[str, Any] = {"activations": self.activations, "reverse": self.is_reverse}
        operands = [state]
        if self.cell == "lstm":
            operands.append(_given(memory))
            options["keeps_memory"] = keeps_memory
        if self.cell == "gru":
            operands.append(self._bias_of_new_state(cx, of_state, biases))
            options["resets_first"] = False
        if biases:
            products = op.add(products, self._sum(cx, biases))
        if self.projection is not None:
            products = self._with_initial(cx, cx.emit(products), of_state, state)
            operands[0] = cx.emit(op.zeros([shape_of(state)[0], shape_of(self.projection)[1]], cx.dtype))
            of_state = cx.emit(op.matmul(of_state, self.projection))
        make = getattr(operators, self.cell)
        turned = cx.emit(op.permute_dims(of_state))
        return cx.emit(make(cx.emit(products), turned, *operands, **options))

    def _with_initial(self, cx: Context, products: Any, of_state: Any, state: Expr) -> Any:
        """The products of all steps, with the initial state's product W h added to those of the first one.

        With a projection P the hidden vector u in front of it is the state: W h = (W P) u, since h = P u. The initial
        h need not be a P u, so u is zero there.
        """
        first = cx.emit(op.matmul(state, op.permute_dims(of_state)))
        steps = known_size(shape_of(products)[0], "the number of its steps")
        at = steps - 1 if self.is_reverse else 0
        parts = [sliced(cx, products, 0, *ends) for ends in ((0, at), (at + 1, steps)) if ends[0] < ends[1]]
        own = cx.emit(op.add(sliced(cx, products, 0, at, at + 1), first))
        rows = [*parts, own] if self.is_reverse else [own, *parts]
        return cx.emit(op.concat(rows, 0)) if parts else own

    def outputs(self, cx: Context, hidden: Any) -> Any:
        """The states that the layer returns."""
        if self.projection is None:
            return hidden
        return cx.emit(op.matmul(hidden, op.permute_dims(self.projection)))

    def _bias_of_new_state(self, cx: Context, of_state: Expr, biases: Sequence[Expr]) -> Any:
        """It is an operand of its own, since it is reset together with the product with the state."""
        hidden = shape_of(of_state)[1]
        if not biases:
            return relax.const(np.zeros([hidden], cx.dtype), cx.dtype)
        return sliced(cx, biases[1], 0, 2 * hidden, 3 * hidden)

    def _sum(self, cx: Context, biases: Sequence[Expr]) -> Any:
        of_input, of_state = biases
        if self.cell == "gru":
            hidden = shape_of(of_state)[0] // 3
            zeros = relax.const(np.zeros([hidden], cx.dtype), cx.dtype)
            of_state = op.concat([sliced(cx, of_state, 0, 0, 2 * hidden), zeros], 0)
        return op.add(of_input, of_state)


def _given(value: Expr | None) -> Expr:
    if value is None:
        raise CallRefused("it has no initial memory")
    return value


def _reordered(cx: Context, cell: str, weight: Expr) -> Any:
    """The rows of each gate where our operators have them."""
    order = _ORDER[cell]
    rows = known_size(shape_of(weight)[0], "the size of its weights") // len(order)
    parts = parts_of(cx, weight, [rows] * len(order), 0)
    return weight if len(order) == 1 else cx.emit(op.concat([parts[gate] for gate in order], 0))


def _recurrent(cell: str, *activations: str) -> Converter:
    """The converter of ``cell``: its results are the states of the last layer and the last states of all layers."""

    def convert(
        cx: Context,
        x: Expr,
        initial: Any,
        params: Sequence[Expr],
        has_biases: bool,
        layers: int,
        dropout: float,
        is_training: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Any]:
        if is_training and dropout:
            raise CallRefused("its dropout is random")
        directions = 2 if bidirectional else 1
        each = 4 if has_biases else 2
        total = len(params) // (layers * directions)
        groups = [params[n : n + total] for n in range(0, len(params), total)]
        made = [
            _Direction(cell, activations, n % directions == 1, group[:each], *group[each:])
            for n, group in enumerate(groups)
        ]
        first = swapped(cx, x, [1, 0, 2]) if batch_first else x
        states, last, memories = _run(cx, made, first, initial, directions)
        found = swapped(cx, states, [1, 0, 2]) if batch_first else states
        results = [found, _together(cx, last)]
        return [*results, _together(cx, memories)] if cell == "lstm" else results

    return convert


def _run(
    cx: Context, made: Sequence[_Direction], x: Any, initial: Any, directions: int
) -> tuple[Any, list[Any], list[Any]]:
    """The states of the last layer, and the last states and memories of all layers that are read."""
    last: list[Any] = []
    memories: list[Any] = []
    reads_last, reads_memory = (_is_read(cx, position) for position in (1, 2))
    steps = known_size(shape_of(x)[0], "the number of its steps")
    if steps == 0:
        raise CallRefused("its sequences are empty")
    for first in range(0, len(made), directions):
        outputs = []
        for n, direction in enumerate(made[first : first + directions], first):
            both = initial if isinstance(initial, list) else [initial]
            state, *rest = (selected(cx, each, 0, n) for each in both)
            rows = direction.states(cx, x, state, rest[0] if rest else None, reads_memory)
            states = direction.outputs(cx, sliced(cx, rows, 0, 0, steps))
            outputs.append(states)
            if reads_last:
                last.append(selected(cx, states, 0, 0 if direction.is_reverse else steps - 1))
            if reads_memory:
                memories.append(selected(cx, rows, 0, steps))
        x = outputs[0] if len(outputs) == 1 else cx.emit(op.concat(outputs, 2))
    return x, last, memories


def _is_read(cx: Context, position: int) -> bool:
    return any(user.target is operator.getitem and user.args[1] == position for user in cx.node.users)


def _together(cx: Context, states: Sequence[Expr]) -> Value:
    """(layers * directions, batch, hidden), or None if it is not read."""
    return cx.emit(op.concat([op.expand_dims(each, 0) for each in states], 0)) if states else None


CONVERTERS: Converters = {
    "lstm.input": _recurrent("lstm"),
    "gru.input": _recurrent("gru"),
    "rnn_tanh.input": _recurrent("rnn", "Tanh"),
    "rnn_relu.input": _recurrent("rnn", "Relu"),
}
