"""``bisect``: the smallest set of offloaded kernels that makes the results of a program wrong, or its runs slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from tvm.target import Target

from ...errors import CollageError
from ...frontend.models import Model
from ...frontend.sizes import Shapes
from ...making import imported_for
from ...pipeline import Pipeline
from ...placing import placed
from ...profile.agreement import drawn_inputs, reference_of
from ...program import Program
from ...runtime.custom_op_libraries import libraries_at
from ...sessions.whole_model import WHOLE
from .found import Bisection
from .partial import PartialPrograms, annotated_with
from .slow import SHARE, Slow
from .suspects import described
from .wrong import TVM, Wrong

_OURS = "--backends onednn openblas kernels tvm"

Say = Callable[[str], None]


def bisect(
    model: Model,
    program: Program,
    pipeline: Pipeline | None = None,
    *,
    inputs: Mapping[str, np.ndarray] | None = None,
    against: str | None = None,
    slow: bool = False,
    tolerance: float | None = None,
    share: float = SHARE,
    output: str | Path | None = None,
    target: Target | str | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    tell: Say = lambda _: None,
) -> Bisection:
    """The smallest set of offloaded kernels with which the results of ``program`` differ from the right ones.

    Programs are built in which backends make only some of the kernels, and TVM makes the others. They run in this
    process. :func:`.delta.smallest_failing` decides which sets are tried.

    * ``model``, ``shapes``, ``dims``, ``target``: what the ``program`` was compiled from. ``pipeline`` has the other
      options of that compile, which decide which candidates there are.
    * ``inputs``: arrays by name; by default random ones.
    * ``against``: the reference. The default is ``onnxruntime`` for an ONNX file and ``eager`` for a file of
      PyTorch, if installed, else ``tvm``: the program without offloads.
    * ``slow``: find kernels that make a run slower by more than ``share`` of its time, instead of wrong ones.
    * ``tolerance``: the largest error as a part of a result's range; by default 1e-3, and more for narrow floats.
    * ``output``: an ``.onnx`` file for the operators of the kernel found, with its inputs beside it as ``.npz``.

    Raises CollageError with the reason where the programs cannot be made or compared.
    """
    model, scope = placed(model, target, False)
    if program.device != "cpu":
        raise CollageError("bisect runs programs on CPUs only: compile the model without --target cuda")
    if (other := _whole_model(program)) is not None:
        verdict = f"{other} runs the whole model, so there are no kernels to leave out: compile with {_OURS}"
        return Bisection(other, 0, (), verdict, programs=0)
    pipeline = pipeline or Pipeline()
    _, imported = imported_for(model, pipeline, scope, shapes, dims)
    programs = PartialPrograms.of(
        program, annotated_with(pipeline.until_candidates(), imported, scope), scope
    )
    given = dict(inputs or drawn_inputs(program))
    if slow:
        found = Slow(programs, given, share, tell).found()
    else:
        right = _against(model, against)
        libraries = [each["path"] for each in libraries_at(pipeline.custom_op_libraries)]
        found = Wrong(programs, given, right, model, tolerance, imported, tell, libraries).found()
    if not found.suspects:
        return found
    tell("running the suspects alone")
    suspects, wrote = described(programs, found.suspects, given, None if output is None else Path(output))
    return replace(found, suspects=suspects, wrote=wrote)


def _whole_model(program: Program) -> str | None:
    """The runtime that computes the whole model, or None."""
    kernels = [kernel for plan in (program.plan or {}).values() for kernel in plan.kernels]
    return next((kernel.backend for kernel in kernels if kernel.label == WHOLE), None)


def _against(model: Model, asked: str | None) -> str:
    """What results are compared with; raises CollageError if that is not possible."""
    if asked == TVM:
        return TVM
    if not isinstance(model, (str, Path)):
        if asked is not None:
            raise CollageError(f"{asked} reads files: give the path of the model, or compare with {TVM}")
        return TVM
    if asked is None:
        try:
            return reference_of(model)
        except CollageError:
            return TVM
    known = reference_of(model)
    if asked != known:
        raise CollageError(f"{model} is compared with {known} or {TVM}, not with {asked}")
    return known
