"""Results of exported programs that are in the memory of an input, or of each other.

A caller of PyTorch may change such memory afterwards, and sees the change in the result or in the input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import TensorArgument

from ...errors import ModelError
from .stored import RESULTS


@dataclass(frozen=True, slots=True)
class ViewOfArgument:
    """A result in the memory of an input."""

    source: str
    """The name of the input in the graph."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """How many elements are between the first ones of the input and of the result."""

    def of(self, source: torch.Tensor) -> torch.Tensor:
        """The result for an input with the strides of the example."""
        return source.detach().as_strided(self.size, self.stride, source.storage_offset() + self.offset)


def views_in(program: ExportedProgram) -> dict[str, ViewOfArgument]:
    """The results that are views of an input, by their names in the graph.

    Raises ModelError for a view of another type or of several inputs, and for results that share elements.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = _by_memory([spec.arg.name for spec in program.graph_signature.input_specs], values)
    specs = program.graph_signature.output_specs
    results = [
        spec.arg.name for spec in specs if spec.kind in RESULTS and isinstance(spec.arg, TensorArgument)
    ]
    views: dict[str, ViewOfArgument] = {}
    for memory, names in _by_memory(results, values).items():
        if memory in inputs:
            views |= {name: _view(name, inputs[memory], values) for name in names}
        elif len(names) > 1 and _overlap([values[name] for name in names]):
            raise ModelError(f"its results {' and '.join(names)} share memory")
    return views


def _by_memory(names: Sequence[str], values: dict[str, Any]) -> dict[int, list[str]]:
    """The names of tensors by the storage that they are in."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name in names:
        if isinstance(values[name], torch.Tensor) and values[name].layout is torch.strided:
            found[values[name].untyped_storage()._cdata].append(name)
    return found


def _view(name: str, sources: Sequence[str], values: dict[str, Any]) -> ViewOfArgument:
    value, source = values[name], values[sources[0]]
    if len(sources) > 1 or value.dtype != source.dtype or not _is_known(value):
        raise ModelError(f"its result {name} is in the memory of {' and '.join(sources)}")
    offset = value.storage_offset() - source.storage_offset()
    return ViewOfArgument(sources[0], tuple(value.shape), value.stride(), offset)


def _is_known(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in (*value.shape, *value.stride(), value.storage_offset()))


def _overlap(values: Sequence[torch.Tensor]) -> bool:
    """Whether two tensors of one storage share an element; also where that is not known."""
    if len({value.dtype for value in values}) > 1 or not all(map(_is_known, values)):
        return True
    taken = np.zeros(values[0].untyped_storage().nbytes() // values[0].element_size(), bool)
    for value in values:
        part = np.lib.stride_tricks.as_strided(taken[value.storage_offset() :], value.shape, value.stride())
        if part.any():
            return True
        part[...] = True
    return False
