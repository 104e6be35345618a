"""The kernels that were found, for people: operators, layers, shapes, and the error of each alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...errors import CollageError
from ...graph import outside_vars
from ...index_set import members
from ...profile.timing_points import type_text
from .alone import alone, error_of
from .found import Suspect
from .partial import OffloadedKernel, PartialPrograms
from .reproducer import numbered, write_reproducer


def suspect_of(programs: PartialPrograms, kernel: OffloadedKernel) -> Suspect:
    """A kernel by its names and shapes."""
    graph = programs.graph_of(kernel)
    sub = kernel.candidate.sub_graph(graph)
    written = [graph.nodes[index].var for index in members(sub.exit)]
    types = [var.ty for var in (*outside_vars(sub), *written)]
    shapes = tuple(type_text(ty) for ty in types if hasattr(ty, "dtype") and hasattr(ty, "shape"))
    candidate = kernel.candidate
    return Suspect(kernel.function, candidate.backend, candidate.label, kernel.bindings, shapes)


def described(
    programs: PartialPrograms,
    suspects: Sequence[Suspect],
    inputs: Mapping[str, np.ndarray],
    output: Path | None,
) -> tuple[tuple[Suspect, ...], tuple[str, ...]]:
    """The suspects with their errors alone, and the files of a reproducer for each, if ``output`` asks for them."""
    kernels = {(each.function, each.bindings): each for each in programs.kernels}
    found: list[Suspect] = []
    wrote: list[str] = []
    for number, suspect in enumerate(suspects, 1):
        kernel = kernels[suspect.function, suspect.bindings]
        try:
            apart = alone(programs, kernel, inputs)
        except CollageError as error:
            found.append(replace(suspect, why_no_error=str(error)))
            continue
        if output is not None:
            path = numbered(output, number, len(suspects))
            wrote += write_reproducer(path, apart, suspect.backend, suspect.label)
        try:
            found.append(replace(suspect, error=error_of(programs, kernel, apart)))
        except CollageError as error:
            found.append(replace(suspect, why_no_error=str(error)))
    return tuple(found), tuple(wrote)
