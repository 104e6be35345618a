"""Computes nodes with known operands, with the reference implementation of the onnx package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .arrays import DTYPES
from .converters.precise import is_narrow
from .node import OnnxNode, with_resolved_attributes
from .symbolic import BY_RULE, continued
from .values import Value

_NEVER = frozenset(
    {
        *("If", "Loop", "Scan"),
        # RandomNormal and RandomUniform have no operands, and such nodes are not folded.
        *("Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"),
        # The reference has only their newest version; older ones read other operands or have other defaults.
        *("RoiAlign", "Upsample"),
        # The reference takes rows in place of elements (Unique), or rounds in another way than ONNX Runtime does.
        *("GridSample", "Resize", "Unique"),
        # It trains where a version has no attribute for it, and takes the batch for the channels.
        *("BatchNormalization", "LRN"),
        # It ignores activations, clips and lengths of sequences.
        *("GRU", "LSTM", "RNN"),
        # It counts padding otherwise, has no axes but two, or ignores attributes of windows.
        *("AveragePool", "ConvTranspose", "GlobalMaxPool", "LpPool", "MaxPool"),
        # It subtracts infinities, takes the logarithm of what became 0, or does not take absolute values.
        *("LogSoftmax", "LpNormalization", "OneHot", "ReduceLogSumExp"),
        # Tensors of zeros have another scale.
        "DynamicQuantizeLinear",
    }
)
"""Operators that the reference does not compute as the standard and ONNX Runtime do, or that are not functions."""
_SINCE = {"Softmax": 13, "Hardmax": 13}
"""The versions from which on the reference computes what the standard says: the softmax family flattened before."""
_SLOW = frozenset({"Conv", "MatMul", "Gemm", "Einsum", "Attention"})
"""Operators that the reference computes slowly: only small ones are folded."""
_MOST, _MOST_SLOW, _MOST_GROWN = 1 << 28, 1 << 12, 1 << 18
"""The most elements of all operands; those of an operator in ``_SLOW``; and those of results that are larger than the
operands (an expanded scalar is better computed when the program runs than kept in it)."""


_SUMS = frozenset(
    {
        *("CumProd", "CumSum", "Einsum", "Gemm", "GlobalAveragePool", "Softmax"),
        *("GroupNormalization", "InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization"),
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
        "RMSNormalization",
    }
)
"""Operators that add up: the reference does so in the type of the operands, and 16-bit floats overflow."""


_SHOWN = 64
"""The most elements of an operand that type inference gets the values of, such as axes and shapes."""


def folded(node: OnnxNode) -> list[Value | None] | None:
    """The results of a node, if they are known now; None for one that has no name."""
    given = [value for value in node.inputs if value is not None]
    if not given or any(value.known is None for value in given) or node.op in _NEVER:
        return None
    if node.attribute("broadcast", 0):  # of operator sets before 7, which the reference does not read
        return None
    if node.version < _SINCE.get(node.op, 0):
        return None
    numbers = [value.numbers for value in given if value.numbers is not None]
    if len(numbers) < len(given) or node.op in BY_RULE:
        return _by_rule(node)
    if _loses_digits(node, numbers):
        return None
    if node.op == "QuantizeLinear" and _wraps(numbers):
        return None
    if node.op == "DequantizeLinear" and _are_weights_of_bytes(numbers):
        return None
    read = sum(array.size for array in numbers)
    if node.proto.domain not in ("", "ai.onnx") or read > (_MOST_SLOW if node.op in _SLOW else _MOST):
        return None
    results = _evaluated(node)
    if results is None or sum(result.size for result in results) > max(read, _MOST_GROWN):
        return None
    found = iter(results)
    return [Value.of(next(found)) if name else None for name in node.proto.output]


def _by_rule(node: OnnxNode) -> list[Value | None] | None:
    """The results of a node by the rules for sizes; None if axes or bounds do not fit, which its converter reports."""
    try:
        known = continued(node)
    except (IndexError, ValueError):
        return None
    return None if known is None else [*known]


def _loses_digits(node: OnnxNode, operands: Sequence[np.ndarray]) -> bool:
    """Whether the reference computes in a narrower type than the program would, or by another function."""
    if node.op == "Erf":  # in float32
        return operands[0].dtype == np.float64
    if node.op == "Pow":  # by roots, which differ at -0 and -infinity
        return not np.all(np.isfinite(operands[0]) & (operands[0] != 0))
    return node.op in _SUMS and any(is_narrow(array.dtype.name) for array in operands)


def _are_weights_of_bytes(operands: Sequence[np.ndarray]) -> bool:
    """Whether a DequantizeLinear has a matrix or window of bytes, whose products may be products of bytes.

    Floats would hide the bytes. Where nothing multiplies bytes, the prepared function has the floats as a constant.
    """
    data, scales = operands[:2]
    return data.dtype.name in ("int8", "uint8") and data.ndim > 1 and scales.ndim < 2


_STEPS = 1 << 30
"""The reference rounds to int32 before it saturates: larger quotients wrap around."""


def _wraps(operands: Sequence[np.ndarray]) -> bool:
    """Whether a quotient of QuantizeLinear may be outside of int32, or is not a number."""
    data, scales = operands[:2]
    with np.errstate(all="ignore"):
        most = np.abs(data.astype(np.float64)).max(initial=0.0) / np.abs(scales.astype(np.float64)).min(
            initial=np.inf
        )
    return not most < _STEPS


def _evaluated(node: OnnxNode) -> list[np.ndarray] | None:
    """The results by the reference implementation; None where it fails or gives other types than the standard."""
    proto = with_resolved_attributes(node)
    feeds = dict(_operands(node))
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(_as_function(proto, node.version)).run(None, feeds, {})
        results = [np.asarray(result) for result in found]
        expected = _element_types(node, proto)
    except Exception:  # the reference does not have every operator; then the program computes it
        return None
    dtypes = [result.dtype.name for result in results]
    return results if dtypes == expected and set(dtypes) <= DTYPES else None


def _as_function(proto: onnx.NodeProto, version: int) -> onnx.FunctionProto:
    """A function of one node: for a single node the reference would ignore the version and use the newest."""
    operands = list(dict.fromkeys(name for name in proto.input if name))
    results = [name for name in proto.output if name]
    return helper.make_function("", "folded", operands, results, [proto], [helper.make_opsetid("", version)])


def _element_types(node: OnnxNode, proto: onnx.NodeProto) -> list[str]:
    """The element types of the results by the standard's type inference."""
    schema = onnx.defs.get_schema(node.op, node.version, "")
    types = {name: _type_of(array) for name, array in _operands(node)}
    data = {
        name: numpy_helper.from_array(array, name) for name, array in _operands(node) if array.size <= _SHOWN
    }
    found = onnx.shape_inference.infer_node_outputs(
        schema, proto, types, data, opset_imports=[helper.make_opsetid("", node.version)], ir_version=10
    )
    return [
        helper.tensor_dtype_to_np_dtype(found[name].tensor_type.elem_type).name
        for name in proto.output
        if name
    ]


def _operands(node: OnnxNode) -> Iterator[tuple[str, np.ndarray]]:
    """The known operands with their names."""
    for name, value in zip(node.proto.input, node.inputs, strict=False):
        if value is not None and value.known is not None:
            yield name, value.known


def _type_of(array: np.ndarray) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
