"""Operators without a converter: a call of ONNX Runtime, or of a Python function that the user gives.

Such a call is opaque: no pass looks into it, and no other backend takes it. If sequences or strings connect such
nodes, the whole model is one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ...annotations import EXTERNAL_MODS
from ...defaults import FLOAT32
from ...errors import ModelError, first_line
from ...graph.shapes import tensor_type
from ...runtime.custom_op_libraries import CustomOpLibrary, files_of
from ...runtime.custom_ops import CustomOps, encoded, is_another, register_custom_ops, results_of, symbol_of
from ...sessions import RUNTIMES, SessionModel, session_module, session_options
from ..opaque import Result, allocating_call, cast, parts_of, with_remarks
from .arrays import DTYPES, numpy_dtype
from .node import OnnxNode, with_resolved_attributes
from .values import Dim, Value

_RUNTIME = RUNTIMES["onnxruntime"]
_DRAWN = 2
"""The value of open sizes of the arrays with which a function is called to learn the types of its results."""
_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
    "tensor(bool)": "bool",
    **{f"tensor({name})": name for name in DTYPES if "int" in name},
}


@dataclass(slots=True)
class Elsewhere:
    """The calls of one model, as they are found."""

    custom_ops: CustomOps = field(default_factory=dict[str, Callable[..., Any]])
    asks_runtime: bool = True
    """Whether the runtime may be called."""
    libraries: Sequence[CustomOpLibrary] = ()
    """Those with operators, which the runtime registers."""
    is_refused: bool = False
    """Whether it refused some node: it may still take the whole model."""
    models: list[SessionModel] = field(default_factory=list[SessionModel])
    remarks: list[str] = field(default_factory=list[str])

    def custom(self, node: OnnxNode) -> list[Value | None] | None:
        """The results of a node for which the user has given a function; None for others."""
        key = f"{node.proto.domain or 'ai.onnx'}::{node.op}"
        function = self.custom_ops.get(key)
        if function is None:
            return None
        if is_another(key, function):
            raise ModelError(
                f"{node.title}: programs of this process call another Python function for {key}; "
                "uc.register_custom_ops replaces it for those that have not run"
            )
        try:
            attributes = encoded({name: node.attribute(name) for name in node.attributes})
        except TypeError as error:
            raise ModelError(f"{node.title}: {error}") from error
        results = _results_of_function(function, node, attributes)
        register_custom_ops({key: function})
        self.remarks.append(
            f"{node.title} is the Python function for {key}, which has to be where the program runs"
        )
        return _called(node, symbol_of(key), results, allocates=True, first=ir.StringImm(attributes))

    def by_runtime(self, node: OnnxNode, refusal: str, reason: str) -> list[Value | None]:
        """The results of a node from the runtime.

        Raises ModelError with ``refusal`` if the runtime cannot compute it.
        """
        if not self.asks_runtime:
            raise ModelError(refusal)
        if missing := _RUNTIME.why_unavailable():
            raise ModelError(f"{refusal} ({_RUNTIME.title} may compute it: {missing})")
        if any(attribute.type in _GRAPHS for attribute in node.attributes.values()):
            self.is_refused = True
            raise ModelError(refusal)
        symbol = f"{_RUNTIME.name}_node_{len(self.models)}"
        try:
            model, names = _model_of(node)
            onnx_bytes = model.SerializeToString()
            results = _results_of_session(onnx_bytes, names, self.libraries, has_shapes=False)
        except Exception as error:  # any exception of the runtime for a node that it cannot compute either
            self.is_refused = True
            told = f"; {self._runtime} does not compute it: {first_line(error)}" if self.libraries else ""
            raise ModelError(f"{refusal}{told}") from error
        inputs = [value.name for value in model.graph.input]
        outputs = [value.name for value in model.graph.output]
        settings = _RUNTIME.settings_for(FLOAT32, is_region=True)
        self.models.append(SessionModel(symbol, onnx_bytes, inputs, outputs, settings, self.libraries))
        self.remarks.append(f"{self._runtime} computes {node.title}: {reason}")
        found = iter(_called(node, symbol, results, allocates=not all(map(_is_known, results))))
        return [next(found) if node.is_asked(number) else None for number in range(len(node.proto.output))]

    @property
    def _runtime(self) -> str:
        """The runtime with its libraries, for messages."""
        return f"{_RUNTIME.title} with {files_of(self.libraries)}" if self.libraries else _RUNTIME.title

    def whole(
        self, params: Mapping[str, relax.Var], outputs: Sequence[str], onnx_bytes: bytes, has_shapes: bool
    ) -> IRModule:
        """The module of a model that is one call; raises ModelError if the runtime does not take it.

        ``has_shapes``: whether the model has the shapes of its results.
        """
        if missing := _RUNTIME.why_unavailable():
            raise ModelError(missing)
        variables = {str(var.name): var for param in params.values() for var in _symbols(param)}
        try:
            results = _results_of_session(onnx_bytes, variables, self.libraries, has_shapes)
        except Exception as error:  # whatever the runtime raises
            raise ModelError(first_line(error)) from error
        symbol = f"{_RUNTIME.name}_main"
        settings = _RUNTIME.settings_for(FLOAT32)
        self.models = [SessionModel(symbol, onnx_bytes, list(params), outputs, settings, self.libraries)]
        builder = relax.BlockBuilder()
        with builder.function("main", list(params.values())):
            with builder.dataflow():
                made = _call(symbol, list(params.values()), results, not all(map(_is_known, results)))
                result = builder.emit_output(made)
            builder.emit_func_output(result)
        return builder.get()

    def attached(self, mod: IRModule) -> IRModule:
        """``mod`` with the functions that its calls need, and the remarks."""
        if self.models:
            mod = mod.with_attr(EXTERNAL_MODS, [session_module(_RUNTIME.name, self.models)])
        return with_remarks(mod, self.remarks)


_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def _model_of(node: OnnxNode) -> tuple[onnx.ModelProto, dict[str, tirx.Var]]:
    """A model of one node, with known operands as constants, and the symbolic sizes of its inputs by name."""
    proto = with_resolved_attributes(node)
    names: dict[str, tirx.Var] = {}
    inputs, weights, given = [], [], []
    for number, value in enumerate(node.inputs):
        if value is None:
            given.append("")
            continue
        name = f"x{number}"
        given.append(name)
        if value.numbers is not None:
            weights.append(numpy_helper.from_array(np.ascontiguousarray(value.numbers), name))
            continue
        element = helper.np_dtype_to_tensor_dtype(numpy_dtype(value.dtype))
        inputs.append(
            helper.make_tensor_value_info(name, element, [_named(dim, names) for dim in value.shape])
        )
    proto.input[:] = given
    outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    opsets = [helper.make_opsetid(domain, version) for domain, version in node.scope.opsets.items()]
    graph = helper.make_graph([proto], "node", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), names


def _named(dim: Dim, names: dict[str, tirx.Var]) -> int | str | None:
    if isinstance(dim, int):
        return dim
    if not isinstance(dim, tirx.Var):
        return None
    name = next((name for name, var in names.items() if var.same_as(dim)), f"n{len(names)}")
    names[name] = dim
    return name


def _results_of_session(
    onnx_bytes: bytes, names: Mapping[str, Any], libraries: Sequence[CustomOpLibrary], has_shapes: bool
) -> list[Result]:
    """The types of the outputs of a model, with symbolic sizes for ``names``; raises whatever the runtime raises.

    ``has_shapes``: whether the model has the shapes of its outputs.
    """
    import onnxruntime

    options = session_options(libraries)
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_bytes, options, providers=["CPUExecutionProvider"])
    results = []
    for output in session.get_outputs():
        if output.type not in _TYPES:
            raise ModelError(f"its result {output.name!r} is {output.type}, which is not supported")
        dims = [dim if isinstance(dim, int) else names.get(str(dim)) for dim in output.shape]
        results.append(Result(_TYPES[output.type], dims))
    if has_shapes or all(result.dims for result in results):
        return results
    return _with_learnt_ranks(session, results)


def _with_learnt_ranks(session: Any, results: Sequence[Result]) -> list[Result]:
    """``results``, of which those without sizes may have any rank: few custom operators say what they return.

    The session runs with zeros and with ones. Sizes that differ between the two depend on the data.
    """
    inputs = session.get_inputs()
    is_fixed = all(isinstance(dim, int) for value in inputs for dim in value.shape)
    for_zeros, for_ones = (
        session.run(
            None, {value.name: fill(_drawn(value.shape), numpy_dtype(_TYPES[value.type])) for value in inputs}
        )
        for fill in (np.zeros, np.ones)
    )
    learnt = []
    for result, zero, one in zip(results, for_zeros, for_ones, strict=True):
        if zero.ndim != one.ndim:
            raise ModelError("the rank of its result depends on the data")
        is_inferred = result.dims or not zero.ndim
        sizes = _common_sizes(zero, one, is_fixed)
        learnt.append(result if is_inferred else Result(result.dtype, sizes, is_sure=False))
    return learnt


def _common_sizes(zero: np.ndarray, one: np.ndarray, is_fixed: bool) -> list[int | None]:
    """The sizes of results for zeros and for ones; ``is_fixed``: whether those of all operands are known."""
    return [a if a == b and is_fixed else None for a, b in zip(zero.shape, one.shape, strict=True)]


def _drawn(shape: Sequence[Any]) -> list[int]:
    """``shape`` with a number for each open size."""
    return [dim if isinstance(dim, int) else _DRAWN for dim in shape]


def _results_of_function(function: Callable[..., Any], node: OnnxNode, attributes: str) -> list[Result]:
    """The types of a function's results for zeros and for ones in place of what is computed; constants are themselves.

    Sizes that differ between the two depend on the data.
    """
    values = [value for value in node.inputs if value is not None]
    is_fixed = all(isinstance(dim, int) for value in values for dim in value.shape)
    try:
        for_zeros, for_ones = (
            results_of(function, [_filled(value, fill) for value in values], attributes)
            for fill in (np.zeros, np.ones)
        )
    except Exception as error:  # the user's code
        raise ModelError(
            f"{node.title}: its Python function fails for zeros and ones: {first_line(error)}"
        ) from error
    made, asked = len(for_zeros), sum(map(bool, node.proto.output))
    if made < asked or made != len(for_ones):
        raise ModelError(
            f"{node.title}: its Python function returns {made} arrays for zeros and {len(for_ones)} for ones, and "
            f"{asked} are asked for"
        )
    results = []
    for zero, one in zip(for_zeros, for_ones, strict=True):
        if zero.dtype != one.dtype or zero.ndim != one.ndim:
            raise ModelError(
                f"{node.title}: its Python function returns other types or ranks for zeros than for ones"
            )
        if zero.dtype.name not in DTYPES:
            raise ModelError(f"{node.title}: its Python function returns an array of {zero.dtype.name}")
        results.append(Result(zero.dtype.name, _common_sizes(zero, one, is_fixed)))
    return results


def _filled(value: Value, fill: Callable[..., np.ndarray]) -> np.ndarray:
    """A constant, or an array like ``value``."""
    if value.numbers is not None:
        return np.array(value.numbers)
    return fill(_drawn(value.shape), numpy_dtype(value.dtype))


def _called(
    node: OnnxNode,
    symbol: str,
    results: Sequence[Result],
    allocates: bool,
    first: ir.StringImm | None = None,
) -> list[Value | None]:
    """The results of a call with the operands of a node, after the arguments ``first`` of a Python function.

    Constants are inside of the model of a runtime already.
    """
    operands: list[relax.Expr] = [] if first is None else [first]
    for number, value in enumerate(node.inputs):
        if value is not None and (first is not None or value.numbers is None):
            operands.append(node[number])
    made = node.builder.emit(_call(symbol, operands, results, allocates))
    parts = parts_of(made, len(results))
    if not allocates:
        emitted = [node.emit(part) for part in parts]
    else:
        fresh_size = node.importer.fresh_size
        emitted = [cast(node.builder, *pair, fresh_size) for pair in zip(parts, results, strict=True)]
    return [Value(result.dtype, expr=expr) for result, expr in zip(results, emitted, strict=True)]


def _call(symbol: str, operands: list[relax.Expr], results: Sequence[Result], allocates: bool) -> relax.Expr:
    """A call that writes its results to memory of the program, or allocates them if it must."""
    if not allocates:
        types = [relax.TensorType(_dims(result), result.dtype) for result in results]
        several = types if len(types) > 1 else types[0]
        return relax.call_dps_packed(symbol, relax.Tuple(operands), out_ty=several)
    return allocating_call(symbol, operands, results)


def _dims(result: Result) -> list[Dim]:
    """The sizes of a result, all of which are known."""
    known = [dim for dim in result.dims if dim is not None]
    assert len(known) == len(result.dims)
    return known


def _is_known(result: Result) -> bool:
    return result.is_sure and all(dim is not None for dim in result.dims)


def _symbols(param: relax.Var) -> list[tirx.Var]:
    shape = tensor_type(param).shape
    assert isinstance(shape, relax.ShapeExpr)
    return [dim for dim in shape.values if isinstance(dim, tirx.Var)]
