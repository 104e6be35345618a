"""One sample of GraphNet through ``uc.compile``, compared with eager; ``graphnet.py`` runs it in a process of its own.

usage: graphnet_check.py SAMPLE FOLDER [--onnx] [--save] [--budget S] [--database FILE]

Writes FOLDER/result.json, and with ``--save`` the program (model.so), the ONNX model (model.onnx, where torch's
exporter makes one) and the inputs (inputs.npz), to be timed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graphnet_samples import Sample, load

import unity_collage as uc
from unity_collage.errors import ModelError, first_line

TOLERANCE = 2e-3
"""How far a result may be off, over its largest number."""


class _Ended(Exception):
    """The class of the sample is known."""

    def __init__(self, kind: str, why: str = "") -> None:
        super().__init__(kind)
        self.kind, self.why = kind, why


def main() -> None:
    options = _options()
    result: dict[str, Any] = {}
    try:
        with torch.no_grad():
            _check(options, result)
        result["class"] = "ok"
    except _Ended as ended:
        result |= {"class": ended.kind, "why": ended.why}
    (options.folder / "result.json").write_text(json.dumps(result))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sample", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--budget", type=float, default=30.0)
    parser.add_argument("--database", type=Path)
    return parser.parse_args()


def _check(options: argparse.Namespace, result: dict[str, Any]) -> None:
    with _ends_as("load"):
        sample = load(options.sample)
        wanted = [found.clone() for found in sample.call()]
        if not sample.inputs:
            raise ValueError("it has no inputs")
        if not all(found.isfinite().all() for found in wanted if found.is_floating_point()):
            raise ValueError("eager's results are not finite")
    result["inputs"] = len(sample.inputs)
    program = _program(options, sample, result)
    with _ends_as("run"):
        if options.save:
            program.save(options.folder / "model.so")
        found = program(*(np.array(value.numpy()) for value in sample.inputs.values()))
    with _wrong_or_unstable(sample, wanted):
        result["error"] = _error(found, wanted)
    if options.save:
        np.savez(options.folder / "inputs.npz", *(value.numpy() for value in sample.inputs.values()))


def _program(options: argparse.Namespace, sample: Sample, result: dict[str, Any]) -> uc.Program:
    inputs = tuple(sample.inputs.values())
    with _ends_as("export"):
        exported = torch.export.export(sample.module, inputs)
        model = _onnx(exported, options.folder) if options.onnx else None
    if model is None and options.save:
        with contextlib.suppress(Exception):  # then ONNX Runtime is missing
            _onnx(exported, options.folder)
    start = time.perf_counter()
    settings = {"budget_seconds": options.budget, "database": options.database, "recompile": True}
    try:
        program = (
            uc.compile(sample.module, inputs, **settings) if model is None else uc.compile(model, **settings)
        )
    except ModelError as error:
        raise _Ended("import", first_line(error)) from error
    except Exception as error:
        raise _Ended("compile", f"{type(error).__name__}: {first_line(error)}") from error
    result["compile_seconds"] = time.perf_counter() - start
    return program


def _onnx(exported: torch.export.ExportedProgram, folder: Path) -> Path:
    """The model that torch's exporter makes, in a file."""
    path = folder / "model.onnx"
    with contextlib.redirect_stdout(io.StringIO()):
        made = torch.onnx.export(exported, dynamo=True, verbose=False)
    assert made is not None
    made.save(path)
    return path


@contextlib.contextmanager
def _ends_as(kind: str) -> Iterator[None]:
    """An error inside is the reason for the class ``kind``."""
    try:
        yield
    except Exception as error:
        raise _Ended(kind, f"{type(error).__name__}: {first_line(error)}") from error


@contextlib.contextmanager
def _wrong_or_unstable(sample: Sample, wanted: Sequence[torch.Tensor]) -> Iterator[None]:
    """A sample that ends as wrong inside ends as unstable if eager without oneDNN is wrong, too.

    Such are the ends of detectors with weights that are drawn: they sort scores that are nearly equal.
    """
    try:
        yield
    except _Ended as ended:
        with torch.backends.mkldnn.flags(enabled=False):
            again = [found.clone() for found in sample.call()]
        try:
            _error(again, wanted)
        except _Ended as other:
            raise _Ended("unstable", f"{ended.why}; eager without oneDNN: {other.why}") from None
        raise


def _error(found: Any, wanted: Sequence[torch.Tensor]) -> float:
    """The largest error over a result's largest number; ends as wrong above the tolerance."""
    results = [found] if hasattr(found, "numpy") else list(found)
    if len(results) != len(wanted):
        raise _Ended("wrong", f"{len(results)} results instead of {len(wanted)}")
    largest = max(
        _deviation(ours.numpy(), theirs.numpy()) for ours, theirs in zip(results, wanted, strict=True)
    )
    if largest > TOLERANCE:
        raise _Ended("wrong", f"off by {largest:.1e} of the largest number")
    return largest


def _deviation(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        raise _Ended("wrong", f"{ours.dtype}{ours.shape} instead of {theirs.dtype}{theirs.shape}")
    left, right = (np.atleast_1d(each).astype(np.float64) for each in (ours, theirs))
    known = np.isfinite(right)
    if not np.array_equal(left[~known], right[~known], equal_nan=True) or not np.isfinite(left[known]).all():
        raise _Ended("wrong", "NaN or infinities differ")
    if not known.any():
        return 0.0
    return float(np.abs(left - right)[known].max() / max(np.abs(right[known]).max(), 1e-6))


if __name__ == "__main__":
    main()
