"""If, Loop and Scan: their graphs become private functions, unless they are decided or unrolled while importing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from tvm import relax

from ....graph.shapes import tensor_type
from ..captured import Captured, free_names
from ..node import Converted, Node
from ..repetition import Repetition, Step, are_known_equal, known_number, scalar
from ..symbolic import are_equal
from ..values import Dim, Value
from .control_scan import scan


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch of an If as a private function."""

    call: relax.Call
    results: Sequence[Value]
    """As they are inside of the function."""
    dims: Sequence[Sequence[Dim | None]]
    """The sizes of the results as they are outside; None for those that the branch decides."""


def _if(node: Node) -> Sequence[Value]:
    graphs = [node.required("then_branch"), node.required("else_branch")]
    for graph in graphs:
        if len(graph.output) != len(node.proto.output):
            node.refuse(f"it has {len(node.proto.output)} results, and a branch has {len(graph.output)}")
    holds = known_number(node.value(0))
    if holds is not None:
        scope = replace(node.scope, values=node.scope.values.new_child())
        return node.importer.graph(graphs[0 if holds else 1], scope)
    condition = scalar(node.importer, node.value(0))
    yes, no = (_branch(node, graph) for graph in graphs)
    result = node.emit(relax.If(condition, yes.call, no.call))
    return [_unified(node, relax.TupleGetItem(result, n), yes, no, n) for n in range(len(node.proto.output))]


def _branch(node: Node, graph: onnx.GraphProto) -> _Branch:
    values = node.scope.values
    captured = Captured.of({name: values[name] for name in free_names(graph) if name in values})
    inside = captured.inside()
    results: list[Value] = []

    def emit() -> relax.Expr:
        scope = replace(node.scope, values=type(values)(inside.values()))
        results.extend(node.importer.graph(graph, scope))
        return relax.Tuple([value.tensor(node.builder) for value in results])

    function = node.importer.function(graph.name or "branch", inside.params, emit)
    dims = [inside.seen_outside(value.shape) for value in results]
    return _Branch(relax.Call(function, captured.arguments()), results, dims)


def _unified(node: Node, field: relax.Expr, yes: _Branch, no: _Branch, number: int) -> Value:
    """A result of either branch, with the sizes that both give it."""
    first, second = yes.results[number], no.results[number]
    if first.dtype != second.dtype:
        node.refuse(f"its result {number} is {first.dtype} in one branch and {second.dtype} in the other")
    if first.rank != second.rank:
        node.refuse(
            f"its result {number} has {first.rank} dimensions in one branch and {second.rank} in the other"
        )
    if are_known_equal(first, second):
        return first
    sizes = [
        a if a is not None and b is not None and are_equal(a, b) else node.importer.fresh_size()
        for a, b in zip(yes.dims[number], no.dims[number], strict=True)
    ]
    var = node.builder.emit(field)
    if not isinstance(tensor_type(var).shape, relax.ShapeExpr):
        var = node.builder.match_cast(var, relax.TensorType(sizes, first.dtype))
    return Value(first.dtype, expr=var)


def _loop(node: Node) -> Sequence[Value | None]:
    graph: onnx.GraphProto = node.required("body")
    initial = [node.value(position) for position in range(2, len(node.inputs))]
    states = len(initial)
    _check_body(node, graph, states)
    stacked = [states + n for n in range(len(graph.output) - 1 - states) if node.is_asked(states + n)]

    def body(scope: Any, index: Value, carried: Sequence[Value]) -> Step:
        given = [_like(node, index, graph.input[0]), _like(node, _true(), graph.input[1]), *carried]
        named = {value.name: one for value, one in zip(graph.input, given, strict=True)}
        condition, *found = node.importer.graph(graph, replace(scope, values=scope.values.new_child(named)))
        return Step(condition, found[:states], [found[position] for position in stacked])

    repetition = Repetition(
        node.importer, node.scope, free_names(graph), len(stacked), graph.name or "loop", body
    )
    count, condition = (node.value(n) if node.has(n) else None for n in (0, 1))
    ended, scanned = repetition.results(count, condition, initial)
    results: list[Value | None] = [*ended, *[None] * (len(graph.output) - 1 - states)]
    for position, value in zip(stacked, scanned, strict=True):
        results[position] = value
    return results


def _check_body(node: Node, graph: onnx.GraphProto, states: int) -> None:
    if len(graph.input) != states + 2:
        node.refuse(
            f"it carries {states} values, and its body has {len(graph.input)} inputs, not {states + 2}"
        )
    if len(graph.output) < states + 1:
        node.refuse(f"it carries {states} values, and its body has only {len(graph.output)} results")
    kinds = {"sequence_type": "a sequence", "optional_type": "an optional value"}
    for value in (*graph.input, *graph.output):
        if value.type.WhichOneof("value") in kinds:
            what = kinds[value.type.WhichOneof("value")]
            node.refuse(f"its body has {what}, {value.name!r}, which is not supported")


def _true() -> Value:
    return Value.of(np.array(True))


def _like(node: Node, value: Value, declared: onnx.ValueInfoProto) -> Value:
    """A scalar, as a vector of one element if the body declares one."""
    if len(declared.type.tensor_type.shape.dim) != 1:
        return value
    if value.known is not None:
        return Value.of(value.known.reshape(1), value.dtype)
    return Value(value.dtype, expr=node.reshaped(value.tensor(node.builder), [1]))


CONVERTERS: Mapping[str, Callable[[Node], Converted]] = {"If": _if, "Loop": _loop, "Scan": scan}
