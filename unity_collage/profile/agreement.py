"""Compares the results of a program with those of another runtime for the same file, on given or random inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import is_zipfile

import ml_dtypes  # noqa: F401  # numpy knows bfloat16 and 8-bit floats from here
import numpy as np

from .. import runtime
from ..calling.signature import Spec, TensorSpec, shown
from ..defaults import FILES_OF_TORCH
from ..errors import CollageError, first_line, is_file, not_a_file
from ..measure.compare import why_wrong
from ..program import Program
from .accuracy import deviation
from .peers.runtime_process import RuntimeProcess
from .peers.runtimes import EAGER, ONNX_RUNTIME

Inputs = Mapping[str, np.ndarray]

DRAWN_EXTENT = 2
"""The extent of a symbolic dimension of random inputs."""

_TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2}
_TOLERANCE = 1e-3
"""The largest error as a part of a result's range. It is for whole programs: the rounding of many kernels adds up."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One result of a program beside the reference's."""

    name: str
    error: float | None
    """The largest difference over the reference's range; None where the two cannot be subtracted."""
    reason: str | None
    """Why the results do not agree, or None."""

    def __str__(self) -> str:
        error = "" if self.error is None else f"error {self.error:.1e} of the range"
        parts = [error, "" if self.reason is None else self.reason]
        return f"{shown(self.name)}: {', '.join(filter(None, parts))}"


def reference_of(model: str | Path) -> str:
    """The runtime whose results for a file are the reference; raises CollageError if it is not installed."""
    eager = Path(model).suffix in FILES_OF_TORCH
    package, title = ("torch", "PyTorch") if eager else ("onnxruntime", "ONNX Runtime")
    if find_spec(package) is None:
        raise CollageError(f"{model} is compared with {title}, which is not installed: pip install {package}")
    return EAGER if eager else ONNX_RUNTIME


def agreements(
    program: Program,
    model: str | Path,
    inputs: Inputs,
    tolerance: float | None = None,
    libraries: Sequence[str | Path] = (),
) -> list[Agreement]:
    """Each result of ``program`` beside that of the file it was compiled from.

    ``tolerance``: the largest error over the range of a result, by default by its type. ``libraries``: those with
    custom operators of the model. Raises CollageError where one of the two cannot run.
    """
    tensors = results_of(program, inputs)
    expected = reference_results(model, inputs, libraries)
    if len(expected) != len(tensors):
        name = reference_of(model)
        raise CollageError(f"the program has {len(tensors)} results, and {name} has {len(expected)}")
    return compared_results(program, tensors, expected, tolerance)


def results_of(program: Program, inputs: Inputs) -> list[np.ndarray]:
    """The results of a program; raises CollageError for nested tuples."""
    found = program(dict(inputs))
    tensors = [found] if hasattr(found, "numpy") else list(found)
    if not all(hasattr(tensor, "numpy") for tensor in tensors):
        raise CollageError(
            "the program returns nested tuples, which are not compared: let the model return one tuple"
        )
    return [tensor.numpy() for tensor in tensors]


def reference_results(
    model: str | Path, inputs: Inputs, libraries: Sequence[str | Path] = ()
) -> list[np.ndarray]:
    """The results of the reference runtime; raises CollageError if it cannot run the model."""
    name, threads = reference_of(model), runtime.num_threads()
    with RuntimeProcess(name, model, inputs, threads, libraries=libraries, is_reference=True) as process:
        return list(process.outputs())


def compared_results(
    program: Program, results: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float | None
) -> list[Agreement]:
    """Each result of a program beside the right one, by the names of its results."""
    names = program.output_names or tuple(map(str, range(len(results))))
    return [
        _agreement(title, value, right, tolerance)
        for title, value, right in zip(names, results, expected, strict=True)
    ]


def read_inputs(path: str | Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays in an ``npz`` file, by the names of inputs or as ``arr_0``, ``arr_1`` in their order.

    Raises CollageError with the reason.
    """
    if not is_file(path):
        raise CollageError(not_a_file(path))
    if not is_zipfile(path):
        raise CollageError(
            f"{path} does not hold inputs: numpy.savez(FILE, name=array) writes a file that does"
        )
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except Exception as error:  # numpy and zipfile raise errors of many kinds
        raise CollageError(f"{path} does not hold inputs: {first_line(error)}") from error
    numbered = [f"arr_{number}" for number in range(len(names))]
    if set(arrays) == set(numbered) and set(arrays) != set(names):
        return {name: arrays[number] for name, number in zip(names, numbered, strict=True)}
    return arrays


def drawn_inputs(
    program: Program,
    seed: int = 0,
    extent: int = DRAWN_EXTENT,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """Random arrays for a program: normally distributed floats, integers of 0 and 1.

    Symbolic dimensions are what ``sizes`` says by name, else ``extent``. Raises CollageError where an input is not a
    tensor of known rank.
    """
    if program.signature is None:
        raise CollageError("inputs cannot be drawn: the program does not know their types")
    rng = np.random.default_rng(seed)
    return {spec.name: _drawn(spec, rng, extent, sizes or {}) for spec in program.signature.inputs}


def open_sizes(program: Program, sizes: Mapping[str, int], extent: int) -> dict[str, int]:
    """The size of each symbolic dimension of a program's inputs, by name: that in ``sizes``, else ``extent``."""
    specs = () if program.signature is None else program.signature.inputs
    shapes = [spec.shape for spec in specs if isinstance(spec, TensorSpec) and spec.shape is not None]
    return {dim: sizes.get(dim, extent) for shape in shapes for dim in shape if isinstance(dim, str)}


def _drawn(spec: Spec, rng: np.random.Generator, extent: int, sizes: Mapping[str, int]) -> np.ndarray:
    if not isinstance(spec, TensorSpec) or spec.shape is None:
        raise CollageError(f"input {shown(spec.name)} cannot be drawn: it is {spec}")
    shape = [dim if isinstance(dim, int) else sizes.get(str(dim), extent) for dim in spec.shape]
    dtype = np.dtype(spec.dtype)
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _agreement(name: str, value: np.ndarray, right: np.ndarray, tolerance: float | None) -> Agreement:
    if right.dtype.kind == "V" and right.dtype.itemsize == value.dtype.itemsize:
        right = right.view(value.dtype)  # numpy's files do not keep types such as bfloat16
    if (value.dtype, value.shape) != (right.dtype, right.shape):
        reason = f"{value.dtype} {value.shape}, but the reference has {right.dtype} {right.shape}"
        return Agreement(name, None, reason)
    if value.dtype.kind in "iub":
        return _exact(name, value, right)
    allowed = _TOLERANCES.get(value.dtype.name, _TOLERANCE) if tolerance is None else tolerance
    refusal = why_wrong([value], [right], [allowed])
    finite = np.isfinite(value.astype(np.float64)) & np.isfinite(right.astype(np.float64))
    error = deviation(np.where(finite, value, 0), np.where(finite, right, 0)).largest
    return Agreement(name, error, None if refusal is None else refusal.reason.removeprefix("output 0 "))


def _exact(name: str, value: np.ndarray, right: np.ndarray) -> Agreement:
    wrong = int(np.count_nonzero(value != right))
    return (
        Agreement(name, None, f"{wrong} of {value.size} elements differ")
        if wrong
        else Agreement(name, 0.0, None)
    )
