"""Models in: an IRModule, an ONNX model or the path of one."""

from __future__ import annotations

from pathlib import Path

import onnx
from tvm.ir import IRModule
from tvm.relax.frontend.onnx import from_onnx

from .errors import ModelError

Model = IRModule | onnx.ModelProto | str | Path


def import_model(model: Model) -> tuple[IRModule, tuple[str, ...] | None]:
    """The module, and the names that the model gives its inputs (None: those of ``main``'s parameters).

    Raises ModelError with one line that says what is wrong.
    """
    if isinstance(model, IRModule):
        return model, None
    if isinstance(model, (str, Path)):
        model = read_onnx(Path(model))
    weights = {tensor.name for tensor in model.graph.initializer}
    names = tuple(value.name for value in model.graph.input if value.name not in weights)
    try:
        return from_onnx(model, keep_params_in_input=False), names
    except Exception as error:  # the importer raises whatever its operators raise
        raise ModelError(f"this model cannot be imported: {_first_line(error)}") from error


def read_onnx(path: Path) -> onnx.ModelProto:
    """The model in a file; raises ModelError with one line that says what is wrong."""
    if not path.is_file():
        raise ModelError(f"{path} is not a file")
    try:
        return onnx.load(path)
    except Exception as error:  # protobuf's own errors have no common base
        raise ModelError(f"{path} is not an ONNX model: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
