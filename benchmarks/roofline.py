"""Roofline: what a network must compute and move, and how near to the machine's limits programs come.

After Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009. The roof is the lower of the machine's arithmetic and
of its bandwidth times the intensity, operations per byte.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import onnx

from unity_collage.database.costs import CostDatabase
from unity_collage.machine import last_level, peaks
from unity_collage.machine.caches import Caches
from unity_collage.machine.peaks import Machine


def flops_of(model: onnx.ModelProto) -> float:
    """Multiplications and additions of the direct algorithm, of all convolutions, products and recurrent layers."""
    inferred = onnx.shape_inference.infer_shapes(model)
    shapes = {
        v.name: [d.dim_value or 1 for d in v.type.tensor_type.shape.dim]
        for v in (*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input)
    }
    shapes |= {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    total = 0.0
    for node in model.graph.node:
        if node.op_type == "Conv" and node.output[0] in shapes and node.input[1] in shapes:
            total += 2.0 * math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
        elif node.op_type in ("MatMul", "Gemm") and node.output[0] in shapes and node.input[0] in shapes:
            transposed = any(a.name == "transA" and a.i for a in node.attribute)
            total += 2.0 * math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else -1]
        elif node.op_type in ("LSTM", "GRU", "RNN") and all(name in shapes for name in node.input[:3]):
            steps, batch, _ = shapes[node.input[0]]
            total += 2.0 * steps * batch * sum(math.prod(shapes[name]) for name in node.input[1:3])
    return total


def bytes_of(model: onnx.ModelProto) -> int:
    """The bytes that every run must move, however well kernels are fused: each weight, input and output once."""
    weights = {tensor.name for tensor in model.graph.initializer}
    total = sum(_nbytes(tensor.data_type, tensor.dims) for tensor in model.graph.initializer)
    for value in (*model.graph.input, *model.graph.output):
        if value.name not in weights:
            kind = value.type.tensor_type
            total += _nbytes(kind.elem_type, [dim.dim_value or 1 for dim in kind.shape.dim])
    return total


def _nbytes(elem_type: int, dims: Any) -> int:
    return math.prod(dims) * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)).itemsize


def bandwidths_of(machine: Machine) -> dict[str, float]:
    """Bytes a second that all threads together read of what lies in ``L2``, ``L3`` and ``memory``."""
    near = next((rate for size, rate in reversed(machine.reads) if size <= 1 << 20), machine.reads[0][1])
    (_, third), (_, memory) = machine.weights
    rates = {"L2": near, "L3": third, "memory": memory}
    return {place: rate * machine.threads for place, rate in rates.items()}


def place_of(nbytes: int, caches: Caches) -> str:
    """The closest of ``L2``, ``L3``, ``memory`` that holds ``nbytes``."""
    if nbytes <= caches.l2_bytes:
        return "L2"
    return "L3" if nbytes <= caches.l3_bytes * 3 // 4 else "memory"


def limits_of(database: CostDatabase) -> dict[str, Any]:
    """The measured peaks and caches of this machine as plain data, for :func:`floor_of`."""
    peak = peaks.machine(database)
    return {
        "peak_flops": peak.flops * peak.threads,
        "peak_bandwidth": bandwidths_of(peak),
        **asdict(last_level.caches(database)),
    }


def floor_of(row: Mapping[str, Any], known: Mapping[str, Any]) -> float:
    """The least seconds of a run: its direct arithmetic, or reading its bytes from where its weights lie."""
    place = place_of(row["bytes"], Caches(known["l2_bytes"], known["l3_bytes"]))
    bandwidth = known["peak_bandwidth"][place]
    return max(row["flops"] / known["peak_flops"], row["bytes"] / bandwidth)
