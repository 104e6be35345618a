"""The networks that the benchmarks run: the zoo of ``light/``, and those of ``unseen/`` that nothing was tuned for."""

from __future__ import annotations

from pathlib import Path

import onnx
import zoo_models as models

UNSEEN = Path(__file__).resolve().parent / "unseen"


def names(unseen: bool) -> tuple[str, ...]:
    """All networks of one of the two kinds, in alphabetical order."""
    return models.names(UNSEEN if unseen else None)


def load(name: str) -> onnx.ModelProto:
    """A network of either kind, with its weights drawn. Raises ModelError for an unknown name."""
    return models.load(name, UNSEEN if name in names(unseen=True) else None)
