"""If, Loop and Scan: their graphs become private functions, unless they are decided or unrolled while importing."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from tvm import relax
from tvm.ir import GlobalVar

from ....errors import ModelError, warn
from ..captured import Captured, Inside, free_names
from ..node import Converted, OnnxNode
from ..recursion import TensorForm, sized
from ..repetition import IterationStep, Repetition, are_known_equal, known_number, scalar
from ..symbolic import are_equal
from ..values import Value
from .control_scan import scan


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch of an If as a private function."""

    function: GlobalVar
    captured: Captured
    inside: Inside
    results: Sequence[Value]
    """As they are inside of the function."""


def _if(node: OnnxNode) -> Sequence[Value]:
    graphs = [node.required("then_branch"), node.required("else_branch")]
    for graph in graphs:
        if len(graph.output) != len(node.proto.output):
            node.refuse(f"it has {len(node.proto.output)} results, and a branch has {len(graph.output)}")
    holds = known_number(node.value(0))
    if holds is not None:
        scope = replace(node.scope, values=node.scope.values.new_child())
        return node.importer.graph(graphs[0 if holds else 1], scope)
    condition = scalar(node.importer, node.value(0))
    branches = _branches(node, graphs)
    if None in branches:
        return _only(node, condition, branches)
    yes, no = (branch for branch in branches if branch is not None)
    forms = [_unified(node, number, yes, no) for number in range(len(node.proto.output))]
    result = node.emit(relax.If(condition, _call(node, yes, forms), _call(node, no, forms)))
    found = [_part(node, relax.TupleGetItem(result, number), form) for number, form in enumerate(forms)]
    pairs = zip(yes.results, no.results, strict=True)
    return [pair[0] if are_known_equal(*pair) else value for pair, value in zip(pairs, found, strict=True)]


def _branches(node: OnnxNode, graphs: Sequence[onnx.GraphProto]) -> list[_Branch | None]:
    """The branches; None for one that cannot be imported, if the other can.

    A branch for other sizes than those of the inputs cannot be imported: silero-vad has one for each sampling rate.
    """
    found: list[_Branch | None] = []
    errors: list[ModelError] = []
    for graph in graphs:
        try:
            found.append(_branch(node, graph))
        except ModelError as error:
            found.append(None)
            errors.append(error)
    if len(errors) == len(graphs):
        raise errors[0]
    for error in errors:
        holds = "true" if found[0] is None else "false"
        warn(f"the program fails where the condition of {node.title} is {holds}: {error}")
    return found


def _only(node: OnnxNode, condition: relax.Expr, branches: Sequence[_Branch | None]) -> list[Value]:
    """The results of the branch that could be imported; the program fails when it has to take the other one."""
    (branch,) = (branch for branch in branches if branch is not None)
    holds = condition if branch is branches[0] else node.emit(relax.op.logical_not(condition))
    flag = node.emit(relax.op.astype(node.reshaped(holds, [1]), "int64"))
    node.builder.match_cast(node.emit(relax.op.tensor_to_shape(flag)), relax.ShapeType([1]))
    forms = [TensorForm(value.dtype, branch.inside.seen_outside(value.shape)) for value in branch.results]
    result = node.emit(relax.Call(branch.function, branch.captured.arguments()))
    return [_part(node, relax.TupleGetItem(result, number), form) for number, form in enumerate(forms)]


def _branch(node: OnnxNode, graph: onnx.GraphProto) -> _Branch:
    values = node.scope.values
    captured = Captured.of({name: values[name] for name in free_names(graph) if name in values})
    inside = captured.inside()
    results: list[Value] = []

    def emit() -> relax.Expr:
        scope = replace(node.scope, values=ChainMap(inside.values()))
        results.extend(node.importer.graph(graph, scope))
        return relax.Tuple([value.tensor(node.builder) for value in results])

    function = node.importer.function(graph.name or "branch", inside.params, emit)
    return _Branch(function, captured, inside, results)


def _unified(node: OnnxNode, number: int, yes: _Branch, no: _Branch) -> TensorForm:
    """The type of a result: the sizes that it has in both branches, None where they differ."""
    first, second = yes.results[number], no.results[number]
    if first.dtype != second.dtype:
        node.refuse(f"its result {number} is {first.dtype} in one branch and {second.dtype} in the other")
    if first.rank != second.rank:
        ranks = f"{first.rank} dimensions in one branch and {second.rank} in the other"
        node.refuse(f"its result {number} has {ranks}")
    pairs = zip(yes.inside.seen_outside(first.shape), no.inside.seen_outside(second.shape), strict=True)
    sizes = [a if a is not None and b is not None and are_equal(a, b) else None for a, b in pairs]
    return TensorForm(first.dtype, sizes)


def _call(node: OnnxNode, branch: _Branch, forms: Sequence[TensorForm]) -> relax.Call:
    """A call of a branch, which returns the type that both branches return."""
    inside = branch.captured.inside()
    ty = relax.TupleType([form.type(inside) for form in forms])
    if all(None not in form.dims for form in forms):
        return relax.Call(branch.function, branch.captured.arguments())
    call = relax.Call(branch.function, inside.arguments())
    name = f"{branch.function.name_hint}_widened"
    function = node.importer.function(name, inside.params, lambda: node.importer.widened(call, ty))
    return relax.Call(function, branch.captured.arguments())


def _part(node: OnnxNode, field: relax.Expr, form: TensorForm) -> Value:
    return Value(form.dtype, expr=sized(node.importer, node.builder.emit(field), form.dims))


def _loop(node: OnnxNode) -> Sequence[Value | None]:
    graph: onnx.GraphProto = node.required("body")
    initial = [node.value(position) for position in range(2, len(node.inputs))]
    states = len(initial)
    _check_body(node, graph, states)
    stacked = [states + n for n in range(len(graph.output) - 1 - states) if node.is_asked(states + n)]

    def body(scope: Any, index: Value, carried: Sequence[Value]) -> IterationStep:
        given = [_like(node, index, graph.input[0]), _like(node, _true(), graph.input[1]), *carried]
        named = {value.name: one for value, one in zip(graph.input, given, strict=True)}
        condition, *found = node.importer.graph(graph, replace(scope, values=scope.values.new_child(named)))
        return IterationStep(condition, found[:states], [found[position] for position in stacked])

    repetition = Repetition(
        node.importer, node.scope, free_names(graph), len(stacked), graph.name or "loop", body
    )
    count, condition = (node.value(n) if node.has(n) else None for n in (0, 1))
    ended, scanned = repetition.results(count, condition, initial)
    results: list[Value | None] = [*ended, *[None] * (len(graph.output) - 1 - states)]
    for position, value in zip(stacked, scanned, strict=True):
        results[position] = value
    return results


def _check_body(node: OnnxNode, graph: onnx.GraphProto, states: int) -> None:
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


def _like(node: OnnxNode, value: Value, declared: onnx.ValueInfoProto) -> Value:
    """A scalar, as a vector of one element if the body declares one."""
    if len(declared.type.tensor_type.shape.dim) != 1:
        return value
    if value.known is not None:
        return Value.of(value.known.reshape(1), value.dtype)
    return Value(value.dtype, expr=node.reshaped(value.tensor(node.builder), [1]))


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"If": _if, "Loop": _loop, "Scan": scan}
