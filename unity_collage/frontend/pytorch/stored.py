"""Writes an exported program as bytes from which PyTorch runs it operator by operator, as it runs the module itself.

They have the code that torch writes for its graph, and the values that the graph knows, such as weights.
:mod:`unity_collage.runtime.torch_models` reads them. Files of ``torch.export.save`` need the classes of arguments and
results where they are read, and check the arguments in each call.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, TensorArgument

from ...errors import CollageError, first_line
from ..eager import EagerModel

CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)
RESULTS = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)


def eager_model(program: ExportedProgram, decomposed: ExportedProgram) -> EagerModel:
    """``program`` as PyTorch runs it; ``decomposed``: the same program, in whose signature changes are results."""
    graph = hashlib.sha256(program.graph_module.code.encode()).hexdigest()
    changes = any(spec.kind in CHANGES for spec in decomposed.graph_signature.output_specs)
    return EagerModel(f"PyTorch {torch.__version__}", graph, partial(_stored, program, changes))


def _stored(program: ExportedProgram, changes: bool) -> bytes:
    """The bytes; raises CollageError where they cannot be written, or a run would change more than its results."""
    if changes:
        raise CollageError("it changes a weight, a buffer or an input; a program writes only its results")
    buffer = io.BytesIO()
    try:
        torch.save(_described(program.graph_module, _known(program), _results(program)), buffer)
    except Exception as error:  # torch raises whatever its parts raise
        raise CollageError(f"PyTorch cannot write the model: {first_line(error)}") from error
    return buffer.getvalue()


def _results(program: ExportedProgram) -> list[fx.Node]:
    """The nodes of the tensors that the model returns, as the importer has them."""
    specs: Sequence[Any] = program.graph_signature.output_specs
    returned: Any = program.graph.output_node().args[0]
    return [
        node
        for node, spec in zip(returned, specs, strict=True)
        if spec.kind in RESULTS and isinstance(spec.arg, TensorArgument)
    ]


def _known(program: ExportedProgram) -> dict[fx.Node, Any]:
    """The values of those inputs of the graph that are not inputs of the model: weights and constants."""
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    return {node: _value(program, specs[node.name]) for node in inputs if not _is_free(specs[node.name])}


def _is_free(spec: InputSpec) -> bool:
    return spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)


def _value(program: ExportedProgram, spec: InputSpec) -> Any:
    if isinstance(spec.arg, ConstantArgument):
        return spec.arg.value
    state, target = program.state_dict, str(spec.target)
    return state[target] if target in state else program.constants[target]


def _described(
    module: fx.GraphModule, known: Mapping[fx.Node, Any], results: Sequence[fx.Node] | None = None
) -> dict[str, Any]:
    """The code of a graph that returns ``results``, and the values that it names; graphs in it are described alike.

    Without ``results`` it returns what it did before.
    """
    graph, copies, values = fx.Graph(), dict[fx.Node, fx.Node](), dict[str, Any]()
    returned = graph.graph_copy(module.graph, copies)
    graph.output(returned if results is None else tuple(copies[node] for node in results))
    for node, copy in copies.items():
        if node.op != "get_attr" and node not in known:
            continue
        name = f"known_{len(values)}"
        values[name] = known[node] if node in known else attrgetter(str(node.target))(module)
        with graph.inserting_before(copy):
            copy.replace_all_uses_with(graph.get_attr(name))
        graph.erase_node(copy)
    written = fx.GraphModule(values, graph)
    _, (_, imports) = written.__reduce__()  # as torch writes graphs itself
    return {
        "code": f"{imports}\n{written.code}",
        "values": {name: _plain(value) for name, value in values.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, fx.GraphModule):
        return _described(value, {})
    return value.detach() if isinstance(value, torch.Tensor) else value
