"""Arithmetic, comparisons and logic of tensors that are broadcast to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from tvm import relax

from ..node import Converted, OnnxNode
from .precise import dtype_of, narrowed, widened


def _binary(make: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Callable[[OnnxNode], Converted]:
    return lambda node: make(node[0], node[1])


def _variadic(make: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Callable[[OnnxNode], Converted]:
    """Two operands at a time; a single operand is the result itself."""
    return lambda node: reduce(lambda a, b: make(node.emit(a), b), node.operands())


def _mean(node: OnnxNode) -> Converted:
    """The sum divided by the number of operands."""
    operands = node.operands()
    if len(operands) == 1:
        return operands[0]
    total: relax.Expr = widened(node, operands[0])
    for operand in operands[1:]:
        total = node.emit(relax.op.add(total, widened(node, operand)))
    count = node.constant(len(operands), dtype_of(total))
    return narrowed(node, relax.op.divide(total, count), node.dtype())


def _equal(node: OnnxNode) -> Converted:
    a, b = (node.cast(x, "uint8") if node.dtype() == "bool" else x for x in (node[0], node[1]))
    return relax.op.equal(a, b)


def _where(node: OnnxNode) -> Converted:
    condition, yes, no = node.operands()
    if node.dtype(1) != "bool":
        return relax.op.where(condition, yes, no)
    found = node.emit(relax.op.where(condition, node.cast(yes, "uint8"), node.cast(no, "uint8")))
    return relax.op.astype(found, "bool")


_BINARY: Mapping[str, Any] = {
    "Add": relax.op.add,
    "And": relax.op.logical_and,
    "BitwiseAnd": relax.op.bitwise_and,
    "BitwiseOr": relax.op.bitwise_or,
    "BitwiseXor": relax.op.bitwise_xor,
    "Greater": relax.op.greater,
    "GreaterOrEqual": relax.op.greater_equal,
    "Less": relax.op.less,
    "LessOrEqual": relax.op.less_equal,
    "Mul": relax.op.multiply,
    "Or": relax.op.logical_or,
    "Sub": relax.op.subtract,
    "Xor": relax.op.logical_xor,
}

CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    **{op: _binary(make) for op, make in _BINARY.items()},
    "Equal": _equal,
    "Max": _variadic(relax.op.maximum),
    "Mean": _mean,
    "Min": _variadic(relax.op.minimum),
    "Sum": _variadic(relax.op.add),
    "Where": _where,
}
