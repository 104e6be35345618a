"""The model zoo: real architectures with seeded random weights, made on the spot.

``light/NAME.onnx`` holds each graph without its large weights. A note in the file
says how each of those is drawn: a seed of its own, and the mean and standard
deviation of the original initialisation. So every machine makes the same numbers.

``python benchmarks/zoo_models.py OUT_FOLDER [NAME ...]`` writes whole files;
all of them are about 1.3 GB.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from unity_collage.errors import ModelError

_LIGHT = Path(__file__).resolve().parent / "light"
_FLAGS = 2
"""Integers that index nothing are flags: 0 or 1."""


def names(folder: Path | None = None) -> tuple[str, ...]:
    """Every built-in model, or every one in a ``folder`` of others, in alphabetical order."""
    return tuple(sorted(path.stem for path in (folder or _LIGHT).glob("*.onnx")))


def load(name: str, folder: Path | None = None) -> onnx.ModelProto:
    """The model ``name`` with its weights drawn, in float32.

    ``folder`` may hold graphs of the same kind in place of the built-in ones.
    Raises ModelError for a name that is not there.
    """
    path = (_LIGHT if folder is None else Path(folder)) / f"{name}.onnx"
    if not path.exists():
        known = ", ".join(sorted(other.stem for other in path.parent.glob("*.onnx")))
        raise ModelError(f"there is no model named {name}; there are {known}")
    model = onnx.load(path)
    for weight in _drawn_weights(model):
        model.graph.initializer.append(_draw(weight))
    del model.metadata_props[:]
    return model


def _drawn_weights(model: onnx.ModelProto) -> list[dict]:
    notes = {entry.key: entry.value for entry in model.metadata_props}
    return json.loads(notes.get("weights", "[]"))


def _draw(weight: dict) -> onnx.TensorProto:
    draw = np.random.default_rng(weight["seed"]).standard_normal(weight["shape"], dtype=np.float32)
    return numpy_helper.from_array(
        draw * np.float32(weight["std"]) + np.float32(weight["mean"]), weight["name"]
    )


def inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs by name: floats normal, integers within the table that they index, named sizes 1."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: _random(value, _vocabulary(model, value.name), rng)
        for value in model.graph.input
        if value.name not in weights
    }


def _random(value: onnx.ValueInfoProto, bound: int, rng: np.random.Generator) -> np.ndarray:
    tensor = value.type.tensor_type
    shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if dtype.kind in "iub":
        return rng.integers(0, bound, shape).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def _vocabulary(model: onnx.ModelProto, name: str) -> int:
    """How many entries the smallest table has that the input ``name`` indexes."""
    tables = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    sizes = [
        tables[node.input[0]][next((attr.i for attr in node.attribute if attr.name == "axis"), 0)]
        for node in model.graph.node
        if node.op_type == "Gather" and node.input[1] == name and node.input[0] in tables
    ]
    return min(sizes, default=_FLAGS)


def main(args: Sequence[str]) -> int:
    """Writes models into a folder; returns the exit code."""
    if not args:
        sys.stderr.write("usage: python benchmarks/zoo_models.py OUT_FOLDER [NAME ...]\n")
        return 2
    folder = Path(args[0])
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for name in args[1:] or names():
            path = folder / f"{name}.onnx"
            onnx.save(load(name), path)
            sys.stdout.write(f"{name:24s} {path.stat().st_size / 1e6:8.1f} MB\n")
    except ModelError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
