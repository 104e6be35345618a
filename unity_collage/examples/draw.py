"""Draws the large weights of a graph; its file has a note for each instead of the values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper


def drawn(path: Path) -> onnx.ModelProto:
    """The model of a file with its weights drawn, in float32.

    A note in the file has the seed of each weight, and the mean and standard deviation of the original
    initialisation. So every machine draws the same numbers.
    """
    model = onnx.load(path)
    notes = {entry.key: entry.value for entry in model.metadata_props}
    for weight in json.loads(notes.get("weights", "[]")):
        model.graph.initializer.append(_draw(weight))
    del model.metadata_props[:]
    return model


def _draw(weight: dict[str, Any]) -> onnx.TensorProto:
    draw = np.random.default_rng(weight["seed"]).standard_normal(weight["shape"], dtype=np.float32)
    return numpy_helper.from_array(
        draw * np.float32(weight["std"]) + np.float32(weight["mean"]), weight["name"]
    )
