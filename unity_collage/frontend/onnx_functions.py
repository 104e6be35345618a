"""Replaces operators that TVM's importer does not have by their definitions.

An ONNX model may contain functions, and the standard defines some operators (Celu, MeanVarianceNormalization, Swish,
...) by functions of others. Both are inlined.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper

from ..tvm_private import onnx_converters

_HANDLED = frozenset({"Constant", "If"})
"""Operators that the importer handles without an entry in its table of converters."""


def with_functions_inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` without calls of its functions, and without operators that the importer lacks but ONNX defines.

    The result is ``model`` itself if it has neither. Undefined operators stay, and the importer names them in its
    error. Constants become tensors.
    """
    if model.functions:
        model = inliner.inline_local_functions(model)
    known = _HANDLED | onnx_converters().keys()
    lacking = {(node.domain, node.op_type) for node in model.graph.node} - {
        (domain, op) for domain in ("", "ai.onnx") for op in known
    }
    defined = [key for key in sorted(lacking) if _is_defined(model, *key)]
    if defined:
        model = inliner.inline_selected_functions(model, defined, inline_schema_functions=True)
    return _with_tensors(model)


def _with_tensors(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` whose constants are tensors: the importer does not read their other attributes."""
    if all(_number(node) is None for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in changed.graph.node:
        if (number := _number(node)) is not None:
            value = np.array(helper.get_attribute_value(number), _NUMBERS[number.name])
            node.attribute.remove(number)
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))
    return changed


def _number(node: onnx.NodeProto) -> onnx.AttributeProto | None:
    """The attribute with the numbers of a constant, if it is given by numbers."""
    if node.op_type != "Constant":
        return None
    return next((attribute for attribute in node.attribute if attribute.name in _NUMBERS), None)


_NUMBERS = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


def _is_defined(model: onnx.ModelProto, domain: str, op: str) -> bool:
    """Whether the standard defines an operator by a function, in the version that the model uses."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    try:
        # ONNX does not declare the two properties below.
        schema: Any = onnx.defs.get_schema(op, versions.get(domain, 1), domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
