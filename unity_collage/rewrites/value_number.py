"""Value numbers: values with equal numbers are equal. They are used to find common sub-expressions."""

from __future__ import annotations

from collections.abc import Hashable

from tvm import ir, relax
from tvm_ffi import StructuralKey

from .scope import Expr, is_constant

_NOT_A_VALUE = ("relax.memory.", "relax.builtin.", "relax.vm.", "relax.ccl.")
"""Operators that return a place, or a value that depends on when they run."""

_CALLS = ("relax.call_tir", "relax.call_tir_with_grad")
"""Of the operators that call something, those that promise to give the same result each time."""

_SMALL = 64
"""Constants of at most this many bytes are compared by content, larger ones by identity: the importer shares equal
weights, but writes each scalar again.
"""


def value_number(node: Expr) -> Hashable | None:
    """A key that equal computations share, or None for a value that must be computed each time."""
    if isinstance(node, relax.TupleGetItem):
        return ("getitem", node.index, _number(node.tuple_value))
    if not isinstance(node, relax.Call) or not isinstance(node.op, ir.Op):
        return None
    name = node.op.name
    if not _is_value(name, node.op):
        return None
    attrs = None if node.attrs is None else StructuralKey(node.attrs)
    out = StructuralKey(node.ty_args) if node.ty_args else None
    return (name, tuple(_number(arg) for arg in node.args), attrs, out)


def _is_value(name: str, operator: ir.Op) -> bool:
    if name.startswith("relax.call_"):
        return name in _CALLS
    return bool(operator.get_attr("FPurity")) and not name.startswith(_NOT_A_VALUE)


def _number(arg: Expr) -> Hashable:
    if isinstance(arg, (relax.Var, ir.GlobalVar)):
        return arg
    if isinstance(arg, relax.Tuple):
        return tuple(_number(field) for field in arg.fields)
    if is_constant(arg):
        return _constant_number(arg)
    return StructuralKey(arg)


def _constant_number(constant: ir.GenericConst) -> Hashable:
    shape = tuple(constant.value.shape)
    dtype = str(constant.value.dtype)
    if _nbytes(shape) > _SMALL:
        return constant
    return (dtype, shape, constant.value.numpy().tobytes())


def _nbytes(shape: tuple[int, ...]) -> int:
    """An upper bound: eight bytes an element."""
    count = 8
    for dim in shape:
        count *= dim
    return count
