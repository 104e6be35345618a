"""Arithmetic on symbolic sizes: what operators compute from shapes while a graph is imported.

Exporters compute shapes by graphs of small operators. Where sizes are fixed the values are numbers. Where they are free
the values are arrays of expressions, which these functions continue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from tvm import ir, sym, tirx

from .arrays import dtype_of
from .node import OnnxNode
from .values import Value

BY_RULE = frozenset({"Slice", "Squeeze", "Unsqueeze"})
"""Operators with rules here for numbers too. The reference of onnx reads a begin before the first element as Python
does, and the axes of old versions one after the other."""


def continued(node: OnnxNode) -> list[Value] | None:
    """The results of a node with known operands, some of which are symbolic; None if the results are not known now."""
    rule = _RULES.get(node.op)
    if rule is None or node.proto.domain not in ("", "ai.onnx"):
        return None
    found = rule(node, [value.known if value is not None else None for value in node.inputs])
    if found is None:
        return None
    if node.op == "Cast":
        dtype = dtype_of(node.required("to"))
    else:
        symbolic = (value.dtype for value in node.inputs if value is not None and value.numbers is None)
        dtype = next(symbolic, node.dtype())
    return [_of(array, dtype) for array in (found if isinstance(found, list) else [found])]


def _of(array: Any, dtype: str) -> Value:
    if isinstance(array, np.ndarray) and array.dtype != object:
        return Value.of(array)
    made = np.asarray(array, object)
    return Value.of(made, dtype)


def is_nonnegative(size: Any) -> bool:
    """Whether a size is certainly not negative, given that the sizes of inputs are not."""
    if not isinstance(size, ir.Expr):
        return size >= 0
    if isinstance(size, (ir.Var, tirx.IntImm)):
        return isinstance(size, ir.Var) or size.value >= 0
    if isinstance(size, tirx.Max):
        return is_nonnegative(size.a) or is_nonnegative(size.b)
    if isinstance(size, (tirx.Add, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Min)):
        return is_nonnegative(size.a) and is_nonnegative(size.b)
    return False


def are_equal(a: Any, b: Any) -> bool | None:
    """Whether two sizes are equal; None where that depends on the sizes of inputs."""
    analyzer = sym.Analyzer()
    difference = analyzer.simplify(_expr(a) - _expr(b))
    if isinstance(difference, tirx.IntImm):
        return difference.value == 0
    if _is_positive(difference) or _is_positive(analyzer.simplify(_expr(b) - _expr(a))):
        return False
    return None


def _is_positive(size: Any) -> bool:
    """Whether a sum has a positive constant and no other part that may be negative."""
    if not isinstance(size, tirx.Add):
        return False
    parts = [size.a, size.b]
    constant = any(isinstance(part, tirx.IntImm) and part.value > 0 for part in parts)
    return constant and all(map(is_nonnegative, parts))


def _expr(size: Any) -> ir.Expr:
    return size if isinstance(size, ir.Expr) else tirx.const(int(size), "int64")


def _each(function: Callable[[Any, Any], Any]) -> Callable[[OnnxNode, list[np.ndarray]], np.ndarray | None]:
    def rule(_node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray | None:
        return reduce(lambda a, b: _broadcast(function, a, b), operands)

    return rule


def _broadcast(function: Callable[[Any, Any], Any], a: Any, b: Any) -> np.ndarray | None:
    if a is None or b is None:
        return None
    a, b = np.broadcast_arrays(np.asarray(a, object), np.asarray(b, object))
    found = [function(x, y) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]
    if any(item is None for item in found):
        return None
    made = np.empty(len(found), object)
    made[:] = found
    return made.reshape(a.shape)


def _divided(a: Any, b: Any) -> Any | None:
    # ONNX rounds towards zero, and floor division does so only for numbers that are not negative.
    return _expr(a) // _expr(b) if is_nonnegative(a) and is_nonnegative(b) else None


def _remainder(a: Any, b: Any) -> Any | None:
    return _expr(a) % _expr(b) if is_nonnegative(a) and is_nonnegative(b) else None


def _gather(node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray | None:
    data, indices = operands
    return None if indices.dtype == object else data.take(indices, axis=node.attribute("axis", 0))


def _slice(node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray | None:
    data, *rest = operands
    if any(part is not None and part.dtype == object for part in rest):
        return None
    begins: list[int] = node.integers("starts", 1) or []
    ends: list[int] = node.integers("ends", 2) or []
    axes = node.integers("axes", 3) or range(len(begins))
    steps = node.integers("steps", 4) or [1] * len(begins)
    index = [slice(None)] * data.ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        size = data.shape[axis]
        # Python reads an end before the first element only as None, and knows that place as a begin too.
        last = None if step < 0 and end < -size else end
        index[axis] = slice(max(begin, -size), last, step)
    return data[tuple(index)]


def _squeeze(node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray:
    axes = node.integers("axes", 1)
    return operands[0].squeeze(tuple(axes) if axes else None)


def _unsqueeze(node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray:
    return np.expand_dims(operands[0], tuple(node.integers("axes", 1) or ()))


def _reshape(node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray | None:
    shape = node.integers("shape", 1) if operands[1].dtype != object else None
    if shape is None or node.attribute("allowzero", 0):
        return None
    return operands[0].reshape([operands[0].shape[n] if size == 0 else size for n, size in enumerate(shape)])


def _cast(node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray | None:
    # Sizes fit into 32 bits in practice; a program with larger sizes could not allocate its tensors.
    return operands[0] if dtype_of(node.required("to")) in ("int32", "int64") else None


def _where(_node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray | None:
    condition, a, b = operands
    if condition.dtype == object:
        return None
    return np.where(condition, a.astype(object), b.astype(object))


def _equal(_node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray | None:
    found = _broadcast(are_equal, *operands)
    return None if found is None else found.astype(bool)


def _reduced(
    function: Callable[[Any, Any], Any],
) -> Callable[[OnnxNode, list[np.ndarray]], np.ndarray | None]:
    def rule(node: OnnxNode, operands: list[np.ndarray]) -> np.ndarray | None:
        axes = node.integers("axes", 1)
        if axes is None and node.attribute("noop_with_empty_axes", 0):
            return operands[0]
        if operands[0].ndim != 1 or axes not in (None, [0], [-1]) or operands[0].size == 0:
            return None
        total = np.empty((1,), object)
        total[0] = reduce(function, operands[0].tolist())
        return total if node.attribute("keepdims", 1) else total.reshape(())

    return rule


def _split(node: OnnxNode, operands: list[np.ndarray]) -> list[np.ndarray] | None:
    sizes, axis = node.integers("split", 1), node.attribute("axis", 0)
    count = len(node.proto.output)
    if sizes is None and operands[0].shape[axis] % count:
        return None
    return np.split(operands[0], count if sizes is None else np.cumsum(sizes)[:-1], axis)


def _sum(a: Any, b: Any) -> Any:
    return a + b


def _product(a: Any, b: Any) -> Any:
    return a * b


def _smaller(a: Any, b: Any) -> Any:
    return tirx.min(_expr(a), _expr(b))


def _larger(a: Any, b: Any) -> Any:
    return tirx.max(_expr(a), _expr(b))


_RULES: dict[str, Callable[[OnnxNode, list[Any]], Any]] = {
    "Identity": lambda _, operands: operands[0],
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Concat": lambda node, operands: np.concatenate(
        [part.astype(object) for part in operands], node.attribute("axis", 0)
    ),
    "Split": _split,
    "Where": _where,
    "Equal": _equal,
    "Add": _each(_sum),
    "Sub": _each(lambda a, b: a - b),
    "Mul": _each(_product),
    "Div": _each(_divided),
    "Mod": _each(_remainder),
    "Min": _each(_smaller),
    "Max": _each(_larger),
    "ReduceProd": _reduced(_product),
    "ReduceSum": _reduced(_sum),
    "ReduceMin": _reduced(_smaller),
    "ReduceMax": _reduced(_larger),
}
