"""Converts the nodes of an ONNX graph to Relax, one after another.

Known values are computed at once (:mod:`.folding`). So shape arithmetic, constants and decided branches of an ``If``
leave nothing behind. Converters also get the operands of old and new operator sets in the same form. Files are not
rewritten before: rewriting copies their weights, serialising is limited to 2 GB, and no rewriter of files continues
symbolic sizes.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, zip_longest
from typing import Any

import onnx
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import GlobalVar

from ...errors import ModelError, first_line, last_line
from ...graph.shapes import dtype_of
from ...tvm_private import abandon_function
from . import broadcasting, table
from .arrays import UnsupportedType, array_of, numpy_dtype
from .captured import free_names, sub_graphs
from .data_files import DataFiles
from .elsewhere import Elsewhere
from .folding import folded
from .names import safe
from .node import Converted, NodeRefused, OnnxNode, with_resolved_attributes
from .values import Value

MOST_NODES = 2_000_000
"""The most nodes that are converted: with functions that call functions, a small file can stand for any number."""


@dataclass(slots=True)
class SharedState:
    """What all graphs of a model share."""

    files: DataFiles | None
    """Where data that are not in the message are."""
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto]
    """The model's own functions by domain, name and overload."""
    elsewhere: Elsewhere | None = None
    """What computes nodes without a converter; None: they are refused."""
    converted: int = 0
    names: dict[relax.Expr, str] = field(default_factory=dict)
    """The names of the model's values, by variable."""
    numbers: count[int] = field(default_factory=count)


@dataclass(frozen=True, slots=True)
class GraphScope:
    """The values of names in a graph or in the body of a function."""

    values: ChainMap[str, Value]
    opsets: Mapping[str, int]
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    """The attributes of the call, for the attributes of a function's body that refer to them."""
    calls: tuple[tuple[str, str, str], ...] = ()
    """The functions that the current body is part of."""


@dataclass(slots=True, eq=False)
class GraphImporter:
    """Emits graphs into the functions of a module."""

    model: SharedState
    builder: relax.BlockBuilder
    """The builder of the module, in the function that is being emitted."""

    @property
    def files(self) -> DataFiles | None:
        """Where data that are not in the message are."""
        return self.model.files

    def graph(self, graph: onnx.GraphProto, scope: GraphScope) -> list[Value]:
        """Emit a graph with its inputs in ``scope``; returns the values of its outputs."""
        for tensor in graph.initializer:
            # A name that an input has is the default of this input; callers that give inputs put them first.
            scope.values.maps[0].setdefault(tensor.name, Value.of(array_of(tensor, self.files)))
        if graph.sparse_initializer:
            raise ModelError("sparse tensors are not supported: store them as dense ones")
        self.nodes(graph.node, [output.name for output in graph.output], scope)
        return [self._named(output.name, scope) for output in graph.output]

    def nodes(self, nodes: Sequence[onnx.NodeProto], outputs: Iterable[str], scope: GraphScope) -> None:
        """Emit the nodes that ``outputs`` need, in their order."""
        for proto in _needed(nodes, outputs):
            self.model.converted += 1
            if self.model.converted > MOST_NODES:
                raise ModelError(f"with its functions inlined it has more than {MOST_NODES} nodes")
            self._node(proto, scope)

    def emit(self, expr: relax.Expr, name: str = "") -> relax.Expr:
        """Bind an expression to a variable with a shape in its type: sizes that depend on data get names."""
        if not isinstance(expr, (relax.Var, ir.GenericConst)):
            expr = self.builder.emit(expr, name_hint=safe(name) if name else "")
        ty = expr.ty
        if not isinstance(ty, relax.TensorType) or isinstance(ty.shape, relax.ShapeExpr):
            return expr
        if ty.ndim < 0:
            raise NodeRefused("the rank of its result is not known before the program runs")
        sizes = [self.fresh_size() for _ in range(ty.ndim)]
        return self.builder.match_cast(expr, relax.TensorType(sizes, ty.dtype, ty.vdevice))

    def fresh_size(self) -> tirx.Var:
        """A new symbolic size, for a size that depends on data."""
        return tirx.Var(f"size_{next(self.model.numbers)}", "int64")

    def function(
        self, name: str, params: Sequence[relax.Var], body: Callable[[], relax.Expr | Sequence[relax.Expr]]
    ) -> GlobalVar:
        """Add a private function to the module; ``body()`` emits it with this importer and returns its result."""
        named = "sub_graph" if name == "main" else safe(name)
        with self.builder.function(named, list(params), private=True):
            try:
                result = body()
            except BaseException:
                abandon_function(self.builder)
                raise
            return self.builder.emit_func_output(result)

    def widened(self, result: relax.Expr, ty: relax.TupleType) -> relax.Tuple:
        """A tuple with fields of the wider types ``ty``: both branches of an ``If`` return one type.

        If they differ, TVM inserts casts, and the script of these does not parse back to the same module.
        """
        var = self.builder.emit(result)
        fields = [self.builder.emit(relax.TupleGetItem(var, number)) for number in range(len(ty.fields))]
        return relax.Tuple([self.wider(*pair) for pair in zip(fields, ty.fields, strict=True)])

    def wider(self, expr: relax.Expr, ty: ir.Type) -> relax.Expr:
        """``expr`` with a wider type."""
        return expr if tvm_ffi.structural_equal(expr.ty, ty) else self.builder.match_cast(expr, ty)

    def _named(self, name: str, scope: GraphScope) -> Value:
        if name not in scope.values:
            raise ModelError(f"no node before computes the value {name!r}")
        return scope.values[name]

    def _node(self, proto: onnx.NodeProto, scope: GraphScope) -> None:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        inputs = [self._named(name, scope) if name else None for name in proto.input]
        attributes = dict(_resolved(proto.attribute, scope.attributes))
        node = OnnxNode(proto, inputs, scope.opsets.get(domain, 0), self, attributes, scope)
        try:
            results = self._results(node, domain, scope)
            _check_names(node, results)
        except (NodeRefused, UnsupportedType) as error:
            results = self._computed_elsewhere(node, f"{node.title}: {error}", str(error), error)
        except ModelError:
            raise
        except Exception as error:  # whatever TVM's type inference and numpy raise
            text = f"cannot be converted: {_reason(error, node)}"
            results = self._computed_elsewhere(node, f"{node.title} {text}", f"it {text}", error)
        for name, value in zip_longest(proto.output, results):
            if name and value is not None:
                scope.values[name] = value
                if isinstance(value.expr, relax.Var):
                    self.model.names.setdefault(value.expr, safe(name))

    def _computed_elsewhere(
        self, node: OnnxNode, refusal: str, reason: str, error: Exception
    ) -> list[Value | None]:
        """The results of a node that is not converted for this ``reason``; raises ModelError if nothing computes it."""
        if self.model.elsewhere is None:
            raise ModelError(refusal) from error
        return self.model.elsewhere.by_runtime(node, refusal, reason)

    def _results(self, node: OnnxNode, domain: str, scope: GraphScope) -> list[Value | None]:
        function = self.model.functions.get((domain, node.op, node.proto.overload))
        if function is not None:
            return list(self._called(function, node, scope))
        if domain not in scope.opsets:
            node.refuse(
                f"the model does not say which version of the operators of {domain or 'ai.onnx'} it uses"
            )
        if self.model.elsewhere is not None and (given := self.model.elsewhere.custom(node)) is not None:
            return given
        known = folded(node)
        if known is not None:
            return list(known)
        converter = table.converter(domain, node.op)
        if converter is None:
            defined = _definition(node, domain)
            if defined is None:
                node.refuse(table.reason(domain, node.op))
            return list(self._called(defined, node, scope))
        if not domain and node.op in broadcasting.OPERATORS:
            node.inputs = broadcasting.aligned(node)
        return self._values(converter(node), node)

    def _values(self, converted: Converted, node: OnnxNode) -> list[Value | None]:
        if isinstance(converted, relax.Tuple):
            converted = list(converted.fields)
        single = isinstance(converted, (relax.Expr, Value))
        results = [converted] if single else list(converted)
        names = [*node.proto.output, *[""] * len(results)]
        return [self._value(result, name) for result, name in zip(results, names, strict=False)]

    def _value(self, result: Any, name: str) -> Value | None:
        if result is None or isinstance(result, Value):
            return result
        if isinstance(result, ir.GenericConst):
            return Value(dtype_of(result), expr=result)
        var = self.emit(result, name)
        if not isinstance(var.ty, relax.TensorType):
            raise NodeRefused("its result is not a tensor")
        return Value(dtype_of(var), expr=var)

    def _called(self, function: onnx.FunctionProto, node: OnnxNode, scope: GraphScope) -> list[Value | None]:
        """The results of a call of a function: its body is emitted here."""
        key = (function.domain, function.name, function.overload)
        if key in scope.calls:
            raise ModelError(f"the function {function.name!r} calls itself")
        if len(node.inputs) > len(function.input):
            node.refuse(f"it has {len(node.inputs)} operands, its function takes {len(function.input)}")
        values: dict[str, Value] = {
            name: value for name, value in zip(function.input, node.inputs, strict=False) if value is not None
        }
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        attributes |= node.attributes
        opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in function.opset_import}
        inside = GraphScope(ChainMap(values), {**scope.opsets, **opsets}, attributes, (*scope.calls, key))
        missing = set(function.input) - set(values)
        body = [_without(proto, missing) for proto in function.node]
        self.nodes(body, function.output, inside)
        return [inside.values.get(name) for name in function.output]


def _check_names(node: OnnxNode, results: Sequence[Value | None]) -> None:
    """Refuses a node that has a name for a result which is not computed."""
    for name, value in zip_longest(node.proto.output, results):
        if name and value is None:
            node.refuse(f"its result {name!r} is not supported")


def _without(proto: onnx.NodeProto, missing: set[str]) -> onnx.NodeProto:
    """A node of a function, without the optional inputs ``missing``, which this call does not give."""
    if not missing.intersection(proto.input):
        return proto
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    copy.input[:] = ["" if name in missing else name for name in proto.input]
    while copy.input and not copy.input[-1]:
        del copy.input[-1]
    return copy


def _resolved(
    attributes: Iterable[onnx.AttributeProto], given: Mapping[str, onnx.AttributeProto]
) -> Iterable[tuple[str, onnx.AttributeProto]]:
    """Attributes by name; those that refer to an attribute of the call have its value, or are not given."""
    for attribute in attributes:
        if not attribute.ref_attr_name:
            yield attribute.name, attribute
        elif attribute.ref_attr_name in given:
            yield attribute.name, given[attribute.ref_attr_name]


def _needed(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that ``outputs`` depend on, each behind those that it reads, else in the order of ``nodes``.

    The standard asks for such an order, and not every tool keeps it. Nodes of a cycle are left out.
    """
    made = {name: n for n in reversed(range(len(nodes))) for name in nodes[n].output if name}
    needed, pending = set[int](), [made[name] for name in outputs if name in made]
    before: dict[int, set[int]] = {}
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            inside = (name for graph in sub_graphs(nodes[node]) for name in free_names(graph))
            before[node] = {made[name] for name in (*nodes[node].input, *inside) if name in made} - {node}
            pending += before[node]
    behind: dict[int, list[int]] = {node: [] for node in needed}
    for node, read in before.items():
        for each in read:
            behind[each].append(node)
    ready = sorted(node for node in needed if not before[node])
    found: list[onnx.NodeProto] = []
    while ready:
        node = heappop(ready)
        found.append(nodes[node])
        for each in behind[node]:
            before[each].discard(node)
            if not before[each]:
                heappush(ready, each)
    return found


def _definition(node: OnnxNode, domain: str) -> onnx.FunctionProto | None:
    """The function that defines an operator in the standard, for the version and operands of the node."""
    try:
        schema: Any = onnx.defs.get_schema(node.op, node.version, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_context_dependent_function:
        types = [_type(value).SerializeToString() for value in node.inputs]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.version] or [-1]
        proto = with_resolved_attributes(node)
        text = schema.get_context_dependent_function_with_opset_version(
            max(versions), proto.SerializeToString(), types
        )
    elif schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= node.version] or [-1]
        text = schema.get_function_with_opset_version(max(versions))
    else:
        return None
    function = text if isinstance(text, onnx.FunctionProto) else onnx.FunctionProto.FromString(text)
    function.domain, function.name = domain, node.op
    # Attributes that the node does not give have the defaults of the operator; the body refers to them.
    defaults = [attribute.default_value for attribute in schema.attributes.values()]
    function.attribute_proto.extend(value for value in defaults if value.type)
    return function if function.node else None


def _type(value: Value | None) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    shape = [dim if isinstance(dim, int) else None for dim in value.shape]
    return onnx.helper.make_tensor_type_proto(
        onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(value.dtype)), shape
    )


def _reason(error: Exception, node: OnnxNode) -> str:
    """Why a node cannot be converted, for the user."""
    reason = last_line(error) if "\n" in str(error) else first_line(error)
    if isinstance(error, ValueError) and reason.startswith(
        "zip() "
    ):  # it zips sizes that should have the same number
        ranks = [str(value.rank) for value in node.inputs if value is not None]
        return f"its operands, of ranks {', '.join(ranks)}, and its attributes do not fit together"
    return reason or type(error).__name__
