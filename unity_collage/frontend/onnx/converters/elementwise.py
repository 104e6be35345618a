"""Arithmetic: the tables of these subjects in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..node import Converted, OnnxNode
from . import (
    activations,
    argmax,
    arithmetic,
    binary,
    bounds,
    casts,
    determinant,
    einsum,
    losses,
    quantization,
    quantized,
    quantized_functions,
    random_values,
    reductions,
    scans,
    softmax,
    unary,
)

CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    **activations.CONVERTERS,
    **argmax.CONVERTERS,
    **arithmetic.CONVERTERS,
    **binary.CONVERTERS,
    **bounds.CONVERTERS,
    **casts.CONVERTERS,
    **determinant.CONVERTERS,
    **einsum.CONVERTERS,
    **losses.CONVERTERS,
    **quantization.CONVERTERS,
    **quantized.CONVERTERS,
    **random_values.CONVERTERS,
    **reductions.CONVERTERS,
    **scans.CONVERTERS,
    **softmax.CONVERTERS,
    **unary.CONVERTERS,
}

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {
    **activations.MICROSOFT,
    **quantization.MICROSOFT,
    **quantized.MICROSOFT,
    **quantized_functions.MICROSOFT,
}
