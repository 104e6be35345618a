"""One step of an LSTM, GRU or RNN in operators of ONNX, by the equations of the ONNX operators' documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import onnx
from onnx import helper, numpy_helper

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Gates of each kind of cell."""


@dataclass(slots=True)
class Nodes:
    """Nodes in the making, whose values are called after ``prefix``."""

    prefix: str
    made: list[onnx.NodeProto] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    def add(self, op: str, *inputs: str, output: str = "", **attributes: object) -> str:
        output = output or f"{self.prefix}/{op}_{next(self._numbers)}"
        self.made.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, value: np.ndarray) -> str:
        return self.add("Constant", value=numpy_helper.from_array(value))

    def part(self, value: str, index: int, axis: int = 0) -> str:
        """``value[index]`` along ``axis``, which goes."""
        return self.add("Gather", value, self.constant(np.array(index, "int64")), axis=axis)

    def reshape(self, value: str, shape: Sequence[int], output: str = "") -> str:
        return self.add("Reshape", value, self.constant(np.array(shape, "int64")), output=output)

    def transposed(self, value: str) -> str:
        return self.add("Transpose", value, perm=[1, 0])


@dataclass(frozen=True, slots=True)
class Cell:
    """One direction of a node: what it multiplies its state by, and its activations."""

    nodes: Nodes
    weights: str
    """(hidden, gates x hidden)"""
    bias: str
    """What is added to products with them, (gates x hidden); empty where the inputs have it."""
    activations: Sequence[str]
    gates: int
    hidden: int
    resets_first: bool
    """GRU: whether the state is reset before its product (``linear_before_reset=0``)."""

    def step(self, kind: str, inputs: str, state: str, memory: str) -> tuple[str, str]:
        """The state and the memory behind one step; ``inputs`` is (batch, gates x hidden), with their bias."""
        steps = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}
        return steps[kind](inputs, state, memory)

    def _rnn(self, inputs: str, state: str, memory: str) -> tuple[str, str]:
        """Ht = f(Xt W + Wb + Ht-1 R + Rb)."""
        total = self.nodes.add("Add", inputs, self._product(state))
        return self.nodes.add(self.activations[0], total), memory

    def _lstm(self, inputs: str, state: str, memory: str) -> tuple[str, str]:
        """Ct = ft Ct-1 + it ct; Ht = ot h(Ct); gates in the order i, o, f, c."""
        add, (f, g, h) = self.nodes.add, self.activations
        total = add("Add", inputs, self._product(state))
        admitted, shown, kept = (add(f, self._gate(total, number)) for number in range(3))
        memory = add("Add", add("Mul", kept, memory), add("Mul", admitted, add(g, self._gate(total, 3))))
        return add("Mul", shown, add(h, memory)), memory

    def _gru(self, inputs: str, state: str, memory: str) -> tuple[str, str]:
        """Ht = (1 - zt) ht + zt Ht-1 = ht + zt (Ht-1 - ht); gates in the order z, r, h."""
        add, (f, g) = self.nodes.add, self.activations
        product = self._product(state)
        kept, reset = (
            add(f, add("Add", self._gate(inputs, number), self._gate(product, number))) for number in range(2)
        )
        if self.resets_first:
            new = self._gate(self._product(add("Mul", reset, state)), 2)
        else:
            new = add("Mul", reset, self._gate(product, 2))
        new = add(g, add("Add", self._gate(inputs, 2), new))
        return add("Add", new, add("Mul", kept, add("Sub", state, new))), memory

    def _gate(self, values: str, number: int) -> str:
        """(batch, hidden) of (batch, gates x hidden)."""
        if self.gates == 1:
            return values
        return self.nodes.part(self.nodes.reshape(values, [-1, self.gates, self.hidden]), number, axis=1)

    def _product(self, state: str) -> str:
        found = self.nodes.add("MatMul", state, self.weights)
        return self.nodes.add("Add", found, self.bias) if self.bias else found
