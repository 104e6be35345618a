"""Imports an ONNX model: checks of the file, ``main`` and its parameters."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence

import onnx
from tvm import relax
from tvm.ir import IRModule

from ...errors import ModelError
from ...graph.shapes import dtype_of
from ...sessions import RUNTIMES
from ...tvm_private import end_open_blocks
from ..called import with_called
from ..sizes import Shapes
from . import table
from .data_files import DataFiles
from .elsewhere import Elsewhere
from .graph import GraphImporter, GraphScope, SharedState
from .inputs import as_multiples, parameters
from .kernel_sizes import with_named_sizes
from .names import safe, with_names
from .original import original
from .values import Value

_OLDEST = 6
"""The oldest supported operator set. Earlier ones have other rules of broadcasting, and shapes as attributes."""


def imported(
    model: onnx.ModelProto,
    files: DataFiles | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    elsewhere: Elsewhere | None = None,
) -> tuple[IRModule, tuple[str, ...], tuple[str, ...]]:
    """The module of a model, the names of its inputs and of its results.

    ``files``: where data are that are not in the message; without it such data are refused. A node without a converter
    becomes a call that ``elsewhere`` makes; without it such a model is refused. Raises ModelError with the reason in
    one line.
    """
    opsets = _opsets(model)
    if not model.graph.output:
        raise ModelError("the model has no results: name values in graph.output")
    params = parameters(model.graph, shapes or {}, dims or {})
    functions = {(_standard(f.domain), f.name, f.overload): f for f in model.functions}
    outputs = tuple(output.name for output in model.graph.output)
    state = SharedState(files, functions, elsewhere)
    try:
        mod = _converted(model, state, params, outputs, opsets)
    except ModelError as error:
        if elsewhere is None or not elsewhere.is_refused:
            raise
        mod = _whole(model, files, elsewhere, params, outputs, error)
    return (mod if elsewhere is None else elsewhere.attached(mod)), tuple(params), outputs


def _whole(
    model: onnx.ModelProto,
    files: DataFiles | None,
    elsewhere: Elsewhere,
    params: Mapping[str, relax.Var],
    outputs: Sequence[str],
    error: ModelError,
) -> IRModule:
    """A model with a part that is not converted, as one call; raises ``error`` if nothing takes the whole model."""
    try:
        has_shapes = all(output.type.tensor_type.HasField("shape") for output in model.graph.output)
        mod = elsewhere.whole(params, outputs, original(model, files, params).tobytes(), has_shapes)
    except ModelError:
        raise error from None
    elsewhere.remarks = [f"{RUNTIMES['onnxruntime'].title} computes the whole model: {error}"]
    return mod


def _converted(
    model: onnx.ModelProto,
    state: SharedState,
    params: Mapping[str, relax.Var],
    outputs: Sequence[str],
    opsets: Mapping[str, int],
) -> IRModule:
    """The module of a model, node by node."""
    builder = relax.BlockBuilder()
    importer = GraphImporter(state, builder)
    values = {name: Value(dtype_of(param), expr=param) for name, param in params.items()}
    scope = GraphScope(ChainMap(values), opsets)
    try:
        # Loops and branches end a block of dataflow: such graphs are emitted without one and get several afterwards.
        with builder.function("main", list(params.values())):
            if _has_control_flow(model):
                values.update(_multiples(model.graph, params, builder))
                builder.emit_func_output(_result(importer, model.graph, scope))
            else:
                with builder.dataflow():
                    values.update(_multiples(model.graph, params, builder))
                    result = builder.emit_output(_result(importer, model.graph, scope))
                builder.emit_func_output(result)
    except BaseException:
        end_open_blocks(builder)
        raise
    mod = with_called(builder.get())
    if _has_control_flow(model):
        mod = relax.transform.ConvertToDataflow(min_size=1)(mod)
    else:  # a function with an If that is normalised again forgets sizes of its results
        mod = _named(mod, state.names, outputs)
    return with_named_sizes(mod)


def _multiples(
    graph: onnx.GraphProto, params: Mapping[str, relax.Var], builder: relax.BlockBuilder
) -> dict[str, Value]:
    """The inputs with sizes that are multiples, cast to types that express it; the program checks these."""
    casts = as_multiples(graph, params)
    return {
        name: Value(dtype_of(params[name]), expr=builder.match_cast(params[name], ty))
        for name, ty in casts.items()
    }


def _named(mod: IRModule, names: Mapping[relax.Expr, str], outputs: Sequence[str]) -> IRModule:
    """``mod`` with the names of the model's values on the variables of ``main``."""
    main = mod["main"]
    called = dict(names)
    if len(outputs) == 1 and isinstance(main.body.body, relax.Var):
        called[main.body.body] = safe(outputs[0])
    functions = {**dict(mod.functions_items()), mod.get_global_var("main"): with_names(main, called)}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _result(importer: GraphImporter, graph: onnx.GraphProto, scope: GraphScope) -> relax.Expr:
    results = [value.tensor(importer.builder) for value in importer.graph(graph, scope)]
    return results[0] if len(results) == 1 else relax.Tuple(results)


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    """The versions of operator sets by domain; raises ModelError for versions that are not supported."""
    if not model.HasField("graph"):
        raise ModelError("the file has no graph")
    opsets = {"com.microsoft": 1}  # its only version, which some files do not name
    opsets |= {_standard(opset.domain): opset.version for opset in model.opset_import}
    version, newest = opsets.get("", 0), onnx.defs.onnx_opset_version()
    if not version and any(not _standard(node.domain) for node in model.graph.node):
        raise ModelError("the model does not say which version of ONNX's operators it uses")
    if version > newest:
        raise ModelError(
            f"the model uses operator set {version}; the installed onnx {onnx.__version__} knows up to {newest}"
        )
    if 0 < version < _OLDEST:
        raise ModelError(f"the model uses operator set {version}; those from {_OLDEST} on are supported")
    return opsets


def _standard(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _has_control_flow(model: onnx.ModelProto) -> bool:
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    return any(node.op_type in ("If", "Loop", "Scan", *table.BY_DEFINITION) for node in nodes)
