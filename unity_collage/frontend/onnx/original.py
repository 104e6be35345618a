"""The original model with the sizes that the user has fixed, for inference runtimes."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx.external_data_helper import load_external_data_for_model
from tvm import relax, tirx

from ...errors import ModelError, first_line
from ...graph.shapes import tensor_type


def original(model: onnx.ModelProto, folder: str | None, params: Mapping[str, relax.Var]) -> bytes:
    """The bytes of ``model`` with its weights inside; its inputs have the known sizes of ``params``.

    Raises ModelError where weights are missing, or if they are larger than a file may be.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        if folder is not None:
            load_external_data_for_model(copy, folder)
    except Exception as error:  # the library's errors have no common base class
        raise ModelError(f"its weights cannot be read: {first_line(error)}") from error
    weights = {tensor.name for tensor in copy.graph.initializer}
    inputs = [value for value in copy.graph.input if value.name not in weights]
    for value in inputs:
        _fix(value, params[value.name])
    # An initializer that is an input too is not a constant for a runtime, since a caller could replace it.
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    try:
        return copy.SerializeToString()
    except Exception as error:  # protobuf's own, or ValueError, depending on its version
        raise ModelError(
            f"with its weights it cannot be one file, which has at most 2 GB: {first_line(error)}"
        ) from error


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
