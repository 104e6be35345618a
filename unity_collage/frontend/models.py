"""Imports a model: an IRModule, an ONNX model, or the path of one."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import onnx
from tvm.ir import IRModule
from tvm.relax.frontend.onnx import from_onnx

from ..errors import ModelError, first_line
from ..tvm_private import end_open_blocks
from .onnx_functions import with_functions_inlined
from .onnx_names import named
from .onnx_recurrent import converters, with_recurrent_operators

Model = IRModule | onnx.ModelProto | str | Path


def import_model(model: Model, keep_names: bool = False) -> tuple[IRModule, tuple[str, ...] | None]:
    """The module, and the names of the model's inputs (None: those of ``main``'s parameters).

    ``keep_names``: give variables the names of the model's values, which takes a second import. Raises ModelError with
    the reason in one line.
    """
    if isinstance(model, IRModule):
        return model, None
    if isinstance(model, (str, Path)):
        model = read_onnx(Path(model))
    if not isinstance(model, onnx.ModelProto):
        raise ModelError(
            f"a model is an IRModule, an onnx.ModelProto or a path, not a {type(model).__name__}"
        )
    weights = {tensor.name for tensor in model.graph.initializer}
    names = tuple(value.name for value in model.graph.input if value.name not in weights)
    model = with_recurrent_operators(with_functions_inlined(model))
    imported = _imported(model)
    return named(imported, model, _imported) if keep_names else imported, names


def _imported(model: onnx.ModelProto) -> IRModule:
    """The module that TVM's importer makes; the operator that it fails at, which it prints, becomes the reason."""
    with redirect_stdout(StringIO()) as printed, converters():
        try:
            return from_onnx(model, keep_params_in_input=False)
        except Exception as error:  # the importer raises whatever its operators raise
            end_open_blocks(error)
            reasons = [line for line in printed.getvalue().splitlines() if line.startswith("Error")]
            reasons.append(first_line(error))
    raise ModelError(f"this model cannot be imported: {': '.join(reasons)}")


def read_onnx(path: Path) -> onnx.ModelProto:
    """The model in a file; raises ModelError with the reason in one line."""
    if not path.is_file():
        raise ModelError(f"{path} is not a file")
    try:
        return onnx.load(path)
    except Exception as error:  # the errors of protobuf have no common base class
        raise ModelError(f"{path} is not an ONNX model: {first_line(error)}") from error
