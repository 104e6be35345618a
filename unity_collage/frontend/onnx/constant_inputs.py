"""Inputs of an ONNX model that become constants of it, before it is imported.

Then values that depend only on them are known: which branch of an ``If`` is taken, and computed sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from ...errors import ModelError
from .inputs import declared_type, names_in

Declared = tuple[str, tuple[int | str, ...] | None]
"""The type of the elements and the dimensions of an input, as its file has them; None: it has no shape."""


def declared_inputs(model: onnx.ModelProto) -> dict[str, Declared]:
    """The types of all inputs in a file, by name; inputs of types that are not supported are left out."""
    names = set(names_in(model.graph)[0])
    found: dict[str, Declared] = {}
    for value in model.graph.input:
        if value.name not in names:
            continue
        try:
            found[value.name] = declared_type(value)
        except ModelError:  # such as a sequence
            continue
    return found


def make_constant(model: onnx.ModelProto, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
    """Replace the inputs with these names in ``model`` by constants; the arrays have their types and shapes.

    ``sizes``: the open dimensions that the arrays fix, by name; they are fixed in the other inputs too.
    """
    left = [value for value in model.graph.input if value.name not in arrays]
    for dim in (dim for value in left for dim in value.type.tensor_type.shape.dim):
        if (size := sizes.get(dim.dim_param.strip())) is not None:
            dim.dim_value = size
    del model.graph.input[:]
    model.graph.input.extend(left)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
