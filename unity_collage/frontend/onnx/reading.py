"""Reads ONNX files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from ...errors import ModelError, first_line


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """A model whose large weights may still be in files."""

    model: onnx.ModelProto
    folder: str | None = None
    """The folder of these files; None where nobody knows it."""


def read_onnx(path: Path) -> OnnxFile:
    """The model in a file, without its external data; raises ModelError with the reason in one line."""
    if not path.is_file():
        raise ModelError(f"{path} is not a file")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # the errors of protobuf have no common base class
        raise ModelError(f"{path} is not an ONNX model: {first_line(error)}") from error
    if not model.HasField("graph"):
        raise ModelError(f"{path} is not an ONNX model: it has no graph")
    return OnnxFile(model, str(path.parent))
