"""LSTM, GRU and RNN as the operators of :mod:`unity_collage.operators`.

The inputs of all steps are multiplied by their weights in one product. Layers with options that few exporters write
become the general operator, and all others those that libraries take. Steps and batch may be symbolic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax

from .... import operators
from ....operators import any_recurrent
from ....operators.recurrent import ACTIVATIONS
from ..equal_sizes import require_shape
from ..node import Converted, OnnxNode
from ..values import Dim
from .precise import dtype_of, narrowed, wide_type, widened

_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}
"""Our operator for each of ONNX."""
_LETTERS = {name.lower(): name for name in any_recurrent.DEFAULTS}
_WITH_ALPHA = ("Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu")
_WITH_BETA = ("Affine", "HardSigmoid", "ScaledTanh")


def _recurrent(node: OnnxNode) -> Converted:
    layer = Layer.of(node, node[0], [_part_reader(node, n) for n in (1, 2)], _CELLS[node.op])
    return layer.results()


def _part_reader(node: OnnxNode, position: int) -> Callable[[int], relax.Expr]:
    """A function that returns the weights of a direction, (inputs, gates * hidden), in the type of the sums."""

    def part(direction: int) -> relax.Expr:
        known, dtype = node.numbers(position), wide_type(node.dtype(position))
        if known is not None:
            return node.constant(np.ascontiguousarray(known[direction].T.astype(dtype)), dtype)
        return node.emit(relax.op.permute_dims(widened(node, _part(node, node[position], direction)), [1, 0]))

    return part


def _dynamic_quantized(node: OnnxNode) -> Converted:
    """DynamicQuantizeLSTM of com.microsoft with known weights of 8 bits, which are widened while importing.

    ONNX Runtime also rounds the inputs and states to 8 bits, for speed; here they are not rounded.
    """
    layer = Layer.of(
        node, node[0], [_dequantized_reader(node, 1, 8), _dequantized_reader(node, 2, 10)], "lstm"
    )
    return layer.results()


def _dequantized_reader(node: OnnxNode, position: int, scale: int) -> Callable[[int], relax.Expr]:
    """A function that returns the weights of a direction, (inputs, gates * hidden), from integers, scales and zero
    points.
    """
    integers = node.needed(position, "a matrix of weights").astype("float32")
    scales, points = (
        node.needed(scale + n, "how its weights are quantised").astype("float32") for n in (0, 1)
    )

    def part(direction: int) -> relax.Expr:
        return node.constant((integers[direction] - points[direction]) * scales[direction], "float32")

    return part


def _part(node: OnnxNode, value: relax.Expr, index: Dim, axis: int = 0) -> relax.Expr:
    """``value[index]`` along an axis, which is dropped."""
    dims: Any = node.dims(value)
    last: Any = index + 1  # type: ignore[operator]
    row = node.emit(relax.op.strided_slice(value, [axis], [index], [last], [1], assume_inbound=True))
    return node.reshaped(row, [*dims[:axis], *dims[axis + 1 :]])


@dataclass(frozen=True, slots=True)
class _Direction:
    """The results of a direction: the states of all steps (steps, batch, hidden), the last state and memory."""

    states: relax.Expr
    state: relax.Expr
    memory: relax.Expr | None


@dataclass(frozen=True, slots=True)
class Layer:
    """A recurrent layer of ``x`` (steps, batch, inputs)."""

    node: OnnxNode
    x: relax.Expr
    weights: Sequence[Callable[[int], relax.Expr]]
    """The weights of inputs and of the state for a direction, both with the gates last."""
    cell: str
    steps: Dim
    batch: Dim
    hidden: int
    directions: int
    dtype: str
    """The type of the sums."""

    @classmethod
    def of(
        cls, node: OnnxNode, x: relax.Expr, weights: Sequence[Callable[[int], relax.Expr]], cell: str
    ) -> Layer:
        """The layer of a node with ``x`` as its first operand."""
        if len(node.dims(x)) != 3:
            node.refuse(f"its input has {len(node.dims(x))} dimensions, not 3 (steps, batch, inputs)")
        x = widened(node, x)
        if node.attribute("layout", 0):
            x = node.emit(relax.op.permute_dims(x, [1, 0, 2]))
        steps, batch, _ = node.dims(x)
        directions = 2 if node.attribute("direction", "forward") == "bidirectional" else 1
        hidden = node.dims(weights[1](0))[0]
        if not isinstance(hidden, int):
            node.refuse("the shape of its weights is not known")
        return cls(node, x, weights, cell, steps, batch, hidden, directions, dtype_of(x))

    def results(self) -> list[relax.Expr | None]:
        """Y, Y_h and Y_c in the type of the node's input."""
        node = self.node
        found = [self._direction(direction) for direction in range(self.directions)]
        batch_first = bool(node.attribute("layout", 0))
        states = (
            node.emit(relax.op.stack([each.states for each in found], 1)) if self.directions > 1 else None
        )
        whole = [self.steps, self.directions, self.batch, self.hidden]
        y: relax.Expr = node.reshaped(found[0].states, whole) if states is None else states
        if batch_first:
            y = node.emit(relax.op.permute_dims(y, [2, 0, 1, 3]))
        state = self._stacked([each.state for each in found], batch_first) if node.is_asked(1) else None
        memories = [each.memory for each in found if each.memory is not None]
        memory = self._stacked(memories, batch_first) if node.is_asked(2) else None
        return [None if v is None else narrowed(node, v, node.dtype()) for v in (y, state, memory)]

    def _stacked(self, parts: Sequence[relax.Expr], batch_first: bool) -> relax.Expr:
        """One for each direction, (directions, batch, hidden), or with the batch first."""
        axis = 1 if batch_first else 0
        rows = [self.node.emit(relax.op.expand_dims(part, axis)) for part in parts]
        return rows[0] if len(rows) == 1 else self.node.emit(relax.op.concat(rows, axis))

    def _direction(self, direction: int) -> _Direction:
        activations = _activations(self.node, self.cell, direction, self.directions)
        reverse = direction == 1 or self.node.attribute("direction", "forward") == "reverse"
        operands = self._operands(direction)
        if self._is_common([name for name, _, _ in activations]):
            return self._common(operands, [name for name, _, _ in activations], reverse)
        return self._general(operands, activations, reverse, direction)

    def _is_common(self, activations: Sequence[str]) -> bool:
        """Whether it is a layer that libraries take."""
        node = self.node
        plain = not (
            node.has(4) or node.has(7) or node.attribute("clip", 0) or node.attribute("input_forget", 0)
        )
        empty = any(isinstance(size, int) and size == 0 for size in (self.steps, self.batch))
        return plain and not empty and set(activations) <= set(ACTIVATIONS)

    def _operands(self, direction: int) -> dict[str, relax.Expr]:
        """The operands of our operators except peepholes and lengths."""
        node, gates = self.node, operators.CELLS[self.cell].gates
        rows, hidden = gates * self.hidden, self.hidden
        known = node.numbers(3) if node.has(3) else np.zeros([self.directions, 2 * rows])
        bias_of_new: relax.Expr = node.constant(np.zeros(hidden), self.dtype)
        if known is not None:
            of_inputs, of_state = known[direction].astype("float64").reshape(2, rows)
            if self.cell == "gru":
                # The bias of the new state is an operand, since the product with the state may be reset with it.
                bias_of_new = node.constant(of_state[2 * hidden :], self.dtype)
                of_state = np.concatenate([of_state[: 2 * hidden], np.zeros(hidden)])
            biases: relax.Expr = node.constant(of_inputs + of_state, self.dtype)
        else:
            both = node.cast(_part(node, node[3], direction), self.dtype)
            of_inputs, of_state = self._rows(both, 0, rows), self._rows(both, rows, 2 * rows)
            if self.cell == "gru":
                bias_of_new = self._rows(of_state, 2 * hidden, rows)
                none = node.constant(np.zeros(hidden), self.dtype)
                of_state = node.emit(relax.op.concat([self._rows(of_state, 0, 2 * hidden), none], 0))
            biases = node.emit(relax.op.add(of_inputs, of_state))
        products = node.emit(relax.op.matmul(self.x, self.weights[0](direction)))
        return {
            "inputs": node.emit(relax.op.add(products, biases)),
            "weights": self.weights[1](direction),
            "state": self._initial(5, direction),
            "memory": self._initial(6, direction),
            "bias": bias_of_new,
        }

    def _rows(self, value: relax.Expr, begin: Dim, end: Dim) -> relax.Expr:
        return self.node.emit(relax.op.strided_slice(value, [0], [begin], [end], [1], assume_inbound=True))

    def _initial(self, position: int, direction: int) -> relax.Expr:
        node = self.node
        if node.has(position):
            axis = 1 if node.attribute("layout", 0) else 0
            given = node.cast(_part(node, node[position], direction, axis), self.dtype)
            ty = relax.TensorType([self.batch, self.hidden], self.dtype)
            # If its batch has another name, the program compares the two.
            return given if tvm_ffi.structural_equal(given.ty, ty) else node.builder.match_cast(given, ty)
        if isinstance(self.batch, int):
            return node.constant(np.zeros([self.batch, self.hidden]), self.dtype)
        zero = node.constant(0, self.dtype)
        return node.emit(relax.op.full([self.batch, self.hidden], zero, self.dtype))

    def _common(
        self, operands: Mapping[str, relax.Expr], activations: Sequence[str], reverse: bool
    ) -> _Direction:
        node, options = self.node, {"activations": activations, "reverse": reverse}
        taken = [operands[name] for name in operators.CELLS[self.cell].operands]
        keeps = self.cell == "lstm" and node.is_asked(2)
        if self.cell == "lstm":
            made = operators.lstm(*taken, **options, keeps_memory=keeps)
        elif self.cell == "gru":
            resets_first = not node.attribute("linear_before_reset", 0)
            made = operators.gru(*taken, **options, resets_first=resets_first)
        else:
            made = operators.rnn(*taken, **options)
        result = node.emit(made)
        states = self._rows(result, 0, self.steps) if keeps else result
        last = self._last(result, states, operands["state"], reverse)
        return _Direction(states, last, _part(node, result, self.steps) if keeps else None)

    def _last(self, result: relax.Expr, states: relax.Expr, initial: relax.Expr, reverse: bool) -> relax.Expr:
        """The state after all steps, which is ``initial`` where there are none."""
        node, steps = self.node, self.steps
        if isinstance(steps, int):
            return _part(node, result, 0 if reverse else steps - 1)
        first = node.emit(relax.op.expand_dims(initial, 0))
        either = node.emit(relax.op.concat([states, first] if reverse else [first, states], 0))
        return _part(node, either, 0 if reverse else steps)

    def _general(
        self,
        operands: Mapping[str, relax.Expr],
        activations: Sequence[tuple[str, float, float]],
        reverse: bool,
        direction: int,
    ) -> _Direction:
        node = self.node
        if node.has(4):
            require_shape(node, "sequence_lens", node.shape(4), [self.batch])
        none = relax.op.full([self.batch], node.constant(0, "int32"), "int32")
        lengths = node.cast(node[4], "int32") if node.has(4) else node.emit(none)
        peepholes = (
            node.cast(_part(node, node[7], direction), self.dtype)
            if node.has(7)
            else node.constant(np.zeros(3 * self.hidden), self.dtype)
        )
        names, alphas, betas = zip(*activations, strict=True)
        options = any_recurrent.Options(
            self.cell,
            names,
            alphas,
            betas,
            reverse,
            not node.attribute("linear_before_reset", 0),
            bool(node.attribute("input_forget", 0)),
            float(node.attribute("clip", 0.0)),
            node.has(7),
            node.has(4),
        )
        given = {**operands, "peepholes": peepholes, "lengths": lengths}
        made = node.emit(any_recurrent.recurrent(given, options))
        return _Direction(*(node.emit(relax.TupleGetItem(made, n)) for n in range(3)))


def _activations(
    node: OnnxNode, cell: str, direction: int, directions: int
) -> list[tuple[str, float, float]]:
    """The activations of a direction with alpha and beta, which the attributes have for those that take them."""
    default = list(operators.CELLS[cell].activations)
    names = list(node.attribute("activations", None) or default * directions)
    if len(names) != len(default) * directions:
        node.refuse(f"it has {len(names)} activations, and {directions} directions take {len(default)} each")
    unknown = [name for name in names if name.lower() not in _LETTERS]
    if unknown:
        node.refuse(f"its activation {unknown[0]!r} is not one of {', '.join(any_recurrent.DEFAULTS)}")
    alphas, betas = (iter(node.attribute(f"activation_{name}", None) or []) for name in ("alpha", "beta"))
    found = []
    for name in (_LETTERS[name.lower()] for name in names):
        alpha, beta = any_recurrent.DEFAULTS[name]
        alpha = next(alphas, alpha) if name in _WITH_ALPHA else alpha
        beta = next(betas, beta) if name in _WITH_BETA else beta
        found.append((name, float(alpha), float(beta)))
    return found[direction * len(default) : (direction + 1) * len(default)]


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = dict.fromkeys(_CELLS, _recurrent)
MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {"DynamicQuantizeLSTM": _dynamic_quantized}
