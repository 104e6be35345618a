"""Models in MNN's own format, which its converter makes of those in ONNX's."""

from __future__ import annotations

from pathlib import Path

from ..converting import to_mnn
from ..scratch import Scratch
from .module import Bytes

_SECONDS = 120.0
"""How long a conversion may take."""


def converted(onnx: bytes | Bytes) -> bytes:
    """The model in MNN's format; raises ModelError with what its converter said."""
    with Scratch("mnn") as folder:
        source, result = Path(folder) / "model.onnx", Path(folder) / "model.mnn"
        source.write_bytes(onnx if isinstance(onnx, bytes) else onnx.data)
        to_mnn(source, result, _SECONDS)
        return result.read_bytes()
