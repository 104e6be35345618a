"""byte_tables: functions of one byte, from ``dequantize`` to ``quantize``, as tables of 256 bytes.

Before: ``quantize(multiply(dequantize(q), dequantize(quantize(sigmoid(dequantize(q))))))``
After:  ``take(table, astype(q, "int32"))``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm.relax import TensorType, Var

from .. import reference
from .constants import constant
from .quantised import BYTES, DEQUANTIZE
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, op, op_name, rank_of, static_shape
from .why_not import WhyNot

_FUNCTIONS = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "add", "clip", "cos", "divide", "erf", "exp", "log", "maximum", "minimum", "multiply", "negative",
        "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.silu", "nn.softplus", "power", "rsqrt", "sigmoid",
        "sin", "sqrt", "square", "subtract", "tanh",
    )
)  # fmt: skip
_SHORT = frozenset(
    f"relax.{name}" for name in ("add", "clip", "maximum", "minimum", "multiply", "nn.relu", "subtract")
)
"""Functions that take less time than a look into a table."""
_MOST_FUNCTIONS = 64
_TAKE, _WIDEN = "relax.take", "relax.astype"


def _table(call: Call, scope: Scope) -> Expr | WhyNot | None:
    if dtype_of(call) not in BYTES:
        return None
    inside: dict[Expr, Call] = {}
    leaves: set[Expr] = set()
    if not _is_function(call, scope, inside, leaves) or len(leaves) != 1:
        return None
    names = [op_name(each) for each in inside.values()]
    quantising = names.count("relax.quantize") + names.count(_TAKE)
    if quantising < 1 and not set(names) & (_FUNCTIONS - _SHORT):
        return None
    (leaf,) = leaves
    if rank_of(call) != rank_of(leaf):  # a number with more axes has added some
        return None
    numbers = np.arange(256).astype(np.uint8).view(dtype_of(leaf))
    values: dict[Expr, np.ndarray] = {leaf: numbers}
    for var, each in inside.items():
        values[var] = _evaluated(each, values, scope)
    first = -int(np.iinfo(dtype_of(leaf)).min)
    table = _evaluated(call, values, scope)[np.argsort(numbers.astype(np.int64), kind="stable")]
    place = op.astype(leaf, "int32")
    if first:
        place = op.add(place, constant(np.asarray(first, np.int32)))
    return op.take(constant(table, dtype_of(call)), place, axis=0, mode="fast")


def _is_function(call: Call, scope: Scope, inside: dict[Expr, Call], leaves: set[Expr]) -> bool:
    """Whether ``call`` computes each element from that of one tensor of bytes; collects what is between in order."""
    name = op_name(call)
    if name == _TAKE:
        place = _place_in_table(call, scope)
        return place is not None and _of_leaf(place, scope, inside, leaves)
    if name == DEQUANTIZE:
        return _are_numbers(call.args[1:], scope) and _of_leaf(call.args[0], scope, inside, leaves)
    if name == "relax.quantize":
        operands, others = call.args[:1], call.args[1:]
    elif name in _FUNCTIONS:
        operands = [arg for arg in call.args if isinstance(arg, Var)]
        others = [arg for arg in call.args if not isinstance(arg, Var)]
    else:
        return False
    if not operands or not _are_numbers(others, scope):
        return False
    return all(_is_inside(operand, scope, inside, leaves) for operand in operands)


def _is_inside(value: Expr, scope: Scope, inside: dict[Expr, Call], leaves: set[Expr]) -> bool:
    if value in inside:
        return True
    found = scope.value(value)
    if not isinstance(found, Call) or len(inside) >= _MOST_FUNCTIONS:
        return False
    if not _is_function(found, scope, inside, leaves):
        return False
    inside[value] = found
    return True


def _of_leaf(value: Expr, scope: Scope, inside: dict[Expr, Call], leaves: set[Expr]) -> bool:
    """Whether bytes are a function of another tensor of bytes, or else a leaf."""
    found = scope.value(value)
    if isinstance(found, Call) and op_name(found) in (_TAKE, "relax.quantize"):
        before = dict(inside), set(leaves)
        if _is_inside(value, scope, inside, leaves):
            return True
        inside.clear()
        inside.update(before[0])
        leaves.clear()
        leaves.update(before[1])
    leaves.add(value)
    return dtype_of(value) in BYTES


def _place_in_table(call: Call, scope: Scope) -> Expr | None:
    """The bytes by which a table of 256 is read, the lowest byte first, as :func:`_table` writes it."""
    if scope.array(call.args[0]) is None or static_shape(call.args[0]) != (256,):
        return None
    moved = scope.call(call.args[1], "relax.add")
    widened = scope.call(call.args[1] if moved is None else moved.args[0], _WIDEN)
    if widened is None or dtype_of(widened) != "int32" or dtype_of(widened.args[0]) not in BYTES:
        return None
    first = 0 if moved is None else scope.scalar(moved.args[1])
    return widened.args[0] if first == -np.iinfo(dtype_of(widened.args[0])).min else None


def _are_numbers(values: Sequence[Expr], scope: Scope) -> bool:
    return all(not isinstance(value.ty, TensorType) or scope.scalar(value) is not None for value in values)


def _evaluated(call: Call, values: Mapping[Expr, np.ndarray], scope: Scope) -> np.ndarray:
    """The result of ``call`` for vectors of operands."""
    name = op_name(call)
    if name == _TAKE:
        place, table = _place_in_table(call, scope), scope.array(call.args[0])
        assert place is not None and table is not None
        return table[values[place].astype(np.int64) - np.iinfo(values[place].dtype).min]
    args: list[Expr] = []
    arrays: list[np.ndarray | None] = []
    for arg in call.args:
        known = values.get(arg)
        if known is None and isinstance(arg.ty, TensorType):
            array = scope.array(arg)
            assert array is not None
            args.append(constant(array.reshape(()), dtype_of(arg)))
            arrays.append(array.reshape(()))
        else:
            args.append(arg if known is None else Var("x", TensorType(known.shape, dtype_of(arg))))
            arrays.append(known)
    if name in ("relax.quantize", DEQUANTIZE):
        make = op.quantize if name == "relax.quantize" else op.dequantize
        found = make(*args, axis=0, out_dtype=dtype_of(call))
    else:
        found = Call(call.op, args, call.attrs, call.ty_args)
    result = reference.evaluate(found, arrays)
    assert isinstance(result, np.ndarray)
    return result


FUNCTION_OF_BYTES = Rewrite("function_of_bytes", ("relax.quantize",), _table)
