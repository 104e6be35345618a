"""The results of a case in double precision, to judge by where its expected numbers are rounded more than it allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from .cases import Case

_NARROWER = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT)


def is_nearer(case: Case, inputs: Sequence[Any], results: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether results are at least as near to those in double precision as the expected ones are.

    By the largest difference of each result; both must have its shape, NaN and infinities. False if the reference
    cannot compute the case in double precision.
    """
    try:
        exact = _evaluated(case.model(), inputs)
    except Exception:  # any failure of the reference: then the expected numbers stand
        return False
    pairs = [
        (_distance(got, true), _distance(want, true))
        for got, want, true in zip(results, expected, exact, strict=True)
    ]
    return all(ours <= theirs < float("inf") for ours, theirs in pairs)


def _evaluated(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    graph = onnx.ModelProto()
    graph.CopyFrom(model)
    for tensor in _tensors(graph.graph):
        if tensor.data_type in _NARROWER:
            tensor.CopyFrom(
                numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float64"), tensor.name)
            )
    for value in (*graph.graph.input, *graph.graph.output, *graph.graph.value_info):
        if value.type.tensor_type.elem_type in _NARROWER:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "softmax_precision") and attribute.i in _NARROWER:
                attribute.i = TensorProto.DOUBLE
            elif attribute.name == "value_float":
                wide = numpy_helper.from_array(np.array(attribute.f, "float64"))
                attribute.CopyFrom(onnx.helper.make_attribute("value", wide))
    names = [value.name for value in graph.graph.input]
    feeds = {name: _wide(value) for name, value in zip(names, inputs, strict=True)}
    return list(ReferenceEvaluator(graph).run(None, feeds))


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


def _wide(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array if array.dtype.kind in "biu" else array.astype("float64")


def _distance(found: Any, exact: Any) -> float:
    a, b = np.asarray(found).astype("float64"), np.asarray(exact).astype("float64")
    finite = np.isfinite(b)
    if a.shape != b.shape or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    return float(np.abs(a - b).max(where=finite, initial=0.0))
