"""Scan: a loop over an axis of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from tvm import relax

from ..captured import free_names
from ..equal_sizes import require_shape
from ..node import OnnxNode
from ..repetition import IterationStep, Repetition
from ..values import Dim, Value
from .scans import reversed_along

_SCANNED, _LENGTH, _LENGTHS, _STATE = "\0scanned", "\0length", "\0lengths", "\0state"
"""Begin names of values that only a scan uses: no name of ONNX has this character."""


@dataclass(frozen=True, slots=True)
class _Scan:
    """The body of a Scan, and how it reads and stacks."""

    node: OnnxNode
    graph: onnx.GraphProto
    states: int
    axes: Sequence[int]
    """The axis of each operand that is scanned; as many as there are such operands."""
    backwards: Sequence[bool]

    @property
    def importer(self) -> Any:
        return self.node.importer

    def run(
        self, scope: Any, length: Value, states: Sequence[Value], scanned: Sequence[Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        """The last states, and the results stacked along axis 0."""
        names = [f"{_SCANNED}{position}" for position in range(len(scanned))]
        around = scope.values.new_child({_LENGTH: length, **dict(zip(names, scanned, strict=True))})

        def body(scope: Any, index: Value, carried: Sequence[Value]) -> IterationStep:
            rows = [
                self._row(scope.values[name], position, index, scope.values[_LENGTH])
                for position, name in enumerate(names)
            ]
            given = dict(zip((value.name for value in self.graph.input), [*carried, *rows], strict=True))
            found = self.importer.graph(self.graph, replace(scope, values=scope.values.new_child(given)))
            return IterationStep(Value.of(np.array(True)), found[: self.states], found[self.states :])

        reads = [*free_names(self.graph), _LENGTH, *names]
        stacked = len(self.graph.output) - self.states
        title = self.graph.name or "scan"
        repetition = Repetition(self.importer, replace(scope, values=around), reads, stacked, title, body)
        return repetition.results(length, None, states)

    def _row(self, value: Value, position: int, index: Value, length: Value) -> Value:
        at = self._from_end(length, index) if self.backwards[position] else index
        return row(self.node, value, self.axes[position], at)

    def _from_end(self, length: Value, index: Value) -> Value:
        """``length - 1 - index``"""
        if length.numbers is not None and index.numbers is not None:
            return Value.of(length.numbers - 1 - index.numbers)
        builder = self.node.builder
        left = self.node.emit(relax.op.subtract(length.tensor(builder), index.tensor(builder)))
        return Value("int64", expr=self.node.emit(relax.op.subtract(left, relax.const(1, "int64"))))


def scan(node: OnnxNode) -> Sequence[Value]:
    """The converter of Scan."""
    graph: onnx.GraphProto = node.required("body")
    return _scanned(node, graph) if node.version >= 9 else _scanned_in_batches(node, graph)


def _scanned(node: OnnxNode, graph: onnx.GraphProto) -> Sequence[Value]:
    number = node.required("num_scan_inputs")
    states, scanned = _operands(node, graph, 0, number)
    given = node.attribute("scan_input_axes", [0] * number)
    axes = [node.axis(axis, value.rank) for axis, value in zip(given, scanned, strict=True)]
    backwards = [bool(item) for item in node.attribute("scan_input_directions", [0] * number)]
    lengths = [value.shape[axis] for value, axis in zip(scanned, axes, strict=True)]
    require_shape(node, "the number of its steps", lengths, lengths[:1] * number)
    length = as_value(lengths[0])
    of = _Scan(node, graph, len(states), axes, backwards)
    ended, stacked = of.run(node.scope, length, states, scanned)
    axes = node.attribute("scan_output_axes", [0] * len(stacked))
    turned = node.attribute("scan_output_directions", [0] * len(stacked))
    placed = [_placed(node, *item) for item in zip(stacked, axes, turned, strict=True)]
    return [*ended, *placed]


def _operands(
    node: OnnxNode, graph: onnx.GraphProto, begin: int, number: int
) -> tuple[list[Value], list[Value]]:
    operands = [node.value(position) for position in range(begin, len(node.inputs))]
    if len(graph.input) != len(operands):
        node.refuse(f"it has {len(operands)} operands, and its body {len(graph.input)} inputs")
    if not 0 < number <= len(operands):
        node.refuse(f"it has {len(operands)} operands, so it cannot scan {number} of them")
    states = len(operands) - number
    return operands[:states], operands[states:]


def _placed(node: OnnxNode, value: Value, axis: int, backwards: bool) -> Value:
    """A stacked result with the iterations along ``axis``."""
    axis = node.axis(axis, value.rank)
    if not backwards and axis == 0:
        return value
    expr = value.tensor(node.builder)
    if backwards:
        expr = reversed_along(node, expr, 0)
    if axis:
        order = [*range(1, axis + 1), 0, *range(axis + 1, value.rank)]
        expr = node.emit(relax.op.permute_dims(expr, order))
    return Value(value.dtype, expr=expr)


# Operator set 8: all operands have a batch axis in front, and the scanned ones scan the next axis.


def _scanned_in_batches(node: OnnxNode, graph: onnx.GraphProto) -> Sequence[Value]:
    number = node.required("num_scan_inputs")
    states, scanned = _operands(node, graph, 1, number)
    for value in scanned[1:]:
        require_shape(node, "a scanned operand", value.shape[:2], scanned[0].shape[:2])
    backwards = [bool(item) for item in node.attribute("directions", [0] * number)]
    of = _Scan(node, graph, len(states), [0] * number, backwards)
    named = {f"{_STATE}{n}": value for n, value in enumerate(states)}
    named |= {f"{_SCANNED}{n}": value for n, value in enumerate(scanned)}
    if node.has(0):
        named[_LENGTHS] = node.value(0)
    scope = replace(node.scope, values=node.scope.values.new_child(named))

    def body(scope: Any, index: Value, _: Sequence[Value]) -> IterationStep:
        rows = {name: row(node, scope.values[name], 0, index) for name in named}
        begin = [rows[f"{_STATE}{n}"] for n in range(len(states))]
        series = [rows[f"{_SCANNED}{n}"] for n in range(number)]
        most = series[0].shape[0]
        if _LENGTHS in rows:
            ended, stacked = of.run(scope, rows[_LENGTHS], begin, series)
            stacked = [_padded(node, value, most) for value in stacked]
        else:
            ended, stacked = of.run(scope, as_value(most), begin, series)
        return IterationStep(Value.of(np.array(True)), [], [*ended, *stacked])

    reads = [*free_names(graph), *named]
    batches = as_value(scanned[0].shape[0])
    repetition = Repetition(node.importer, scope, reads, len(graph.output), "batch", body)
    return repetition.results(batches, None, [])[1]


def _padded(node: OnnxNode, value: Value, most: Dim) -> Value:
    """A stacked result with zeros behind it, up to ``most`` iterations."""
    length, *sizes = value.shape
    zeros = node.emit(relax.op.zeros(relax.ShapeExpr([most - length, *sizes]), value.dtype))
    joined = node.emit(relax.op.concat([value.tensor(node.builder), zeros], 0))
    # Not a match_cast: TVM would replace ``most`` by ``length + (most - length)`` without end.
    return Value(value.dtype, expr=node.reshaped(joined, [most, *sizes]))


def as_value(dim: Dim) -> Value:
    """A size as a scalar."""
    made = np.empty((), object)
    made[()] = dim
    return Value.of(made)


def row(node: OnnxNode, value: Value, axis: int, index: Value) -> Value:
    """The elements at ``index`` of an axis, without this axis."""
    number = index.numbers
    if number is not None and value.known is not None:
        return Value.of(value.known.take(int(number), axis), value.dtype)
    expr = value.tensor(node.builder)
    if number is None:
        return Value(value.dtype, expr=node.emit(relax.op.take(expr, index.tensor(node.builder), axis)))
    begin = int(number)
    cut = node.emit(relax.op.strided_slice(expr, [axis], [begin], [begin + 1]))
    return Value(value.dtype, expr=node.emit(relax.op.squeeze(cut, [axis])))
