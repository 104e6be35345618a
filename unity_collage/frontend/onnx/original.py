"""The original model with the sizes that the user has fixed, for inference runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx.external_data_helper import (
    load_external_data_for_model,
    load_external_data_for_tensor,
    uses_external_data,
)
from tvm import relax, tirx

from ...errors import ModelError, first_line
from ...graph.shapes import tensor_type
from ...sessions import aligned_bytes

_Proto = TypeVar("_Proto", bound=Message)

_LARGEST = 2**31 - 1
"""The most bytes of a message of Protocol Buffers."""
_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number


def original(
    model: onnx.ModelProto, folder: str | None, params: Mapping[str, relax.Var]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of ``model`` with its weights inside; its inputs have the known sizes of ``params``.

    Weights are copied once, into the result. Raises ModelError where weights are missing, or if they are larger than a
    file may be.
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
        if folder is not None:
            load_external_data_for_model(bare, folder)  # the tensors of attributes
        sizes = [tensor.ByteSize() for tensor in _initializers(model, folder)]
        inside = graph.SerializeToString()
        heads = [_head(_INITIALIZER, size) for size in sizes]
        rest = _without(bare, "graph").SerializeToString()
        begin = rest + _head(_GRAPH, len(inside) + sum(map(len, heads)) + sum(sizes)) + inside
        nbytes = len(begin) + sum(map(len, heads)) + sum(sizes)
        if nbytes > _LARGEST:
            raise ModelError("with its weights it cannot be one file, which has at most 2 GB")
        result = aligned_bytes(nbytes)
        at = _write(result, 0, begin)
        for head, tensor in zip(heads, _initializers(model, folder), strict=True):
            at = _write(result, _write(result, at, head), tensor.SerializeToString())
    except ModelError:
        raise
    except Exception as error:  # the library's errors have no common base class
        raise ModelError(f"its weights cannot be read: {first_line(error)}") from error
    return result


def _initializers(model: onnx.ModelProto, folder: str | None) -> Iterator[onnx.TensorProto]:
    """The initializers with their data; one at a time is loaded from a file of its own."""
    for tensor in model.graph.initializer:
        if folder is not None and uses_external_data(tensor):
            loaded = onnx.TensorProto()
            loaded.CopyFrom(tensor)
            load_external_data_for_tensor(loaded, folder)
            loaded.data_location = onnx.TensorProto.DEFAULT
            del loaded.external_data[:]
            yield loaded
        else:
            yield tensor


def _without(message: _Proto, name: str) -> _Proto:
    """A copy of ``message`` without one of its fields."""
    copy = type(message)()
    for field, value in message.ListFields():
        if field.name == name:
            continue
        if isinstance(value, Message):
            getattr(copy, field.name).CopyFrom(value)
        elif isinstance(value, (str, bytes, int, float)):
            setattr(copy, field.name, value)
        else:  # repeated
            getattr(copy, field.name).extend(value)
    return copy


def _head(field: int, nbytes: int) -> bytes:
    """What is before a message that is a field of another: https://protobuf.dev/programming-guides/encoding/."""
    text = bytes([field << 3 | 2])
    while nbytes > 0x7F:
        text += bytes([nbytes & 0x7F | 0x80])
        nbytes >>= 7
    return text + bytes([nbytes])


def _write(result: np.ndarray[Any, np.dtype[np.uint8]], at: int, text: bytes) -> int:
    """Write ``text`` from index ``at`` on; returns where it ends."""
    end = at + len(text)
    result[at:end] = np.frombuffer(text, np.uint8)
    return end


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
