"""Literals in a call: shapes, numbers, strings and constants."""

from __future__ import annotations

from typing import Any, cast

from tvm import ir, relax, tirx

from unity_collage.reference.tir_expr import evaluate
from unity_collage.reference.values import Sizes, Unsupported, Value, tensor_value


def size_of(dimension: Any, sizes: Sizes) -> int:
    """The value of a dimension; raises Unsupported if a variable in it has no size."""
    if isinstance(dimension, int | tirx.IntImm):
        return int(dimension)
    if isinstance(dimension, ir.Var) and dimension in sizes:
        return sizes[dimension]
    return int(evaluate(dimension, sizes))


def is_literal(expr: Any) -> bool:
    """Whether an argument is a literal: a shape, a number, a string, or a tuple of these."""
    if isinstance(expr, ir.Tuple):
        return bool(len(expr.fields)) and all(is_literal(field) for field in expr.fields)
    if isinstance(expr, relax.ShapeExpr | tirx.IntImm | tirx.FloatImm | ir.StringImm):
        return True
    return not isinstance(expr, ir.Var | ir.GenericConst) and ir.is_prim_expr(expr)


def literal(expr: Any, sizes: Sizes) -> Value:
    """The value of a literal or of a constant."""
    if isinstance(expr, ir.Tuple):
        return tuple(literal(field, sizes) for field in expr.fields)
    if isinstance(expr, relax.ShapeExpr):
        return tuple(size_of(dimension, sizes) for dimension in expr.values)
    if isinstance(expr, ir.GenericConst):
        return tensor_value(cast(Any, expr).value)
    if isinstance(expr, tirx.FloatImm):
        return float(expr.value)
    if isinstance(expr, ir.StringImm):
        return str(expr.value)
    if ir.is_prim_expr(expr):
        return size_of(expr, sizes)
    raise Unsupported(f"the value of {type(expr).__name__} is not given")
