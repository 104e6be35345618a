"""The original model with the sizes that the user has fixed, for inference runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx.external_data_helper import load_external_data_for_model, load_external_data_for_tensor
from tvm import relax, tirx

from ...errors import ModelError, first_line
from ...graph.shapes import tensor_type
from ...sessions import aligned_bytes
from .data_files import DataFiles, InFile, left_in_file
from .wire import message_head

_Proto = TypeVar("_Proto", bound=Message)

_LARGEST = 2**31 - 1
"""The most bytes of a message of Protocol Buffers."""
_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number


def original(
    model: onnx.ModelProto, files: DataFiles | None, params: Mapping[str, relax.Var]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of ``model`` with its weights inside; its inputs have the known sizes of ``params``.

    Weights are copied into the result one by one. Raises ModelError where weights are missing, or if they are larger
    than a file may be.
    """
    bare = _without(model, "graph")
    graph = bare.graph
    graph.CopyFrom(_without(model.graph, "initializer"))
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    for value in inputs:
        _fix(value, params[value.name])
    # An initializer that is an input too is not a constant for a runtime, since a caller could replace it.
    del graph.input[:]
    graph.input.extend(inputs)
    try:
        if files is not None:
            load_external_data_for_model(bare, files.folder)  # the tensors of attributes
        tensors = [*model.graph.initializer]
        sizes = [sum(map(_nbytes, _parts(tensor, files))) for tensor in tensors]
        heads = [message_head(_INITIALIZER, size) for size in sizes]
        inside = graph.SerializeToString()
        of_graph = len(inside) + sum(map(len, heads)) + sum(sizes)
        # In the order of their numbers: OpenVINO refuses a message in which a field comes twice before the graph.
        numbers = {field.number: field.name for field, _ in bare.ListFields()}
        before = _without(bare, *(name for number, name in numbers.items() if number >= _GRAPH))
        after = _without(bare, *(name for number, name in numbers.items() if number <= _GRAPH))
        begin, end = before.SerializeToString(), after.SerializeToString()
        begin += message_head(_GRAPH, of_graph) + inside
        nbytes = len(begin) - len(inside) + of_graph + len(end)
        if nbytes > _LARGEST:
            raise ModelError("with its weights it cannot be one file, which has at most 2 GB")
        result = aligned_bytes(nbytes)
        at = _write(result, 0, begin)
        for head, tensor in zip(heads, tensors, strict=True):
            for part in (head, *_parts(tensor, files)):
                at = _write(result, at, part)
        at = _write(result, at, end)
        if at != nbytes:
            raise ModelError("its weights cannot be read: their files have changed meanwhile")
    except ModelError:
        raise
    except Exception as error:  # the library's errors have no common base class
        raise ModelError(f"its weights cannot be read: {first_line(error)}") from error
    return result


def _parts(tensor: onnx.TensorProto, files: DataFiles | None) -> list[bytes | InFile | onnx.TensorProto]:
    """An initializer with its data, in parts; what is in a file of its own is read."""
    if files is None or tensor.data_location != onnx.TensorProto.EXTERNAL:
        return [tensor]
    inside = onnx.TensorProto()
    inside.CopyFrom(tensor)
    inside.ClearField("data_location")
    if place := left_in_file(tensor, files):
        del inside.external_data[:]
        return [inside.SerializeToString() + message_head(_RAW_DATA, place.nbytes), place]
    load_external_data_for_tensor(inside, files.folder)
    del inside.external_data[:]
    return [inside]


def _nbytes(part: bytes | InFile | onnx.TensorProto) -> int:
    if isinstance(part, InFile):
        return part.nbytes
    return len(part) if isinstance(part, bytes) else part.ByteSize()


def _write(
    result: np.ndarray[Any, np.dtype[np.uint8]], at: int, part: bytes | InFile | onnx.TensorProto
) -> int:
    """Write ``part`` from index ``at`` on; returns where it ends."""
    if isinstance(part, InFile):
        end = at + part.nbytes
        part.read_into(result[at:end])
    else:
        text = part if isinstance(part, bytes) else part.SerializeToString()
        end = at + len(text)
        result[at:end] = np.frombuffer(text, np.uint8)
    return end


def _without(message: _Proto, *names: str) -> _Proto:
    """A copy of ``message`` without the fields of these names."""
    copy = type(message)()
    for field, value in message.ListFields():
        if field.name in names:
            continue
        if isinstance(value, Message):
            getattr(copy, field.name).CopyFrom(value)
        elif isinstance(value, (str, bytes, int, float)):
            setattr(copy, field.name, value)
        else:  # repeated
            getattr(copy, field.name).extend(value)
    return copy


def _fix(value: onnx.ValueInfoProto, param: relax.Var) -> None:
    """Write the sizes of ``param`` that are numbers."""
    declared, shape = value.type.tensor_type.shape, tensor_type(param).shape
    assert isinstance(shape, relax.ShapeExpr)
    extents = list(shape.values)
    while len(declared.dim) < len(extents):
        declared.dim.add()
    for dim, extent in zip(declared.dim, extents, strict=True):
        if isinstance(extent, tirx.IntImm):
            dim.dim_value = extent.value
