"""The model zoo: real architectures with seeded random weights, made on the spot.

``light/NAME.onnx`` holds each graph without its large weights; some are examples of the package
(:mod:`unity_collage.examples`, which draws the weights). So every machine makes the same numbers.

``python benchmarks/zoo_models.py OUT_FOLDER [NAME ...]`` writes whole files;
all of them are about 1.3 GB.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from unity_collage.errors import ModelError
from unity_collage.examples import drawn, random_inputs_of
from unity_collage.examples.models import FOLDER

_BUILT_IN = (Path(__file__).resolve().parent / "light", FOLDER)


def names(folder: Path | None = None) -> tuple[str, ...]:
    """Every built-in model, or every one in a ``folder`` of others, in alphabetical order."""
    return tuple(sorted(_paths(folder)))


def load(name: str, folder: Path | None = None) -> onnx.ModelProto:
    """The model ``name`` with its weights drawn, in float32.

    ``folder`` may hold graphs of the same kind in place of the built-in ones.
    Raises ModelError for an unknown name.
    """
    paths = _paths(folder)
    if name not in paths:
        raise ModelError(f"there is no model named {name}; there are {', '.join(sorted(paths))}")
    return drawn(paths[name])


def _paths(folder: Path | None) -> dict[str, Path]:
    folders = _BUILT_IN if folder is None else (Path(folder),)
    return {path.stem: path for each in folders for path in each.glob("*.onnx")}


def inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs by name: floats normal, integers within the table that they index, named sizes 1."""
    return random_inputs_of(model, seed)


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
