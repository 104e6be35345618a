"""constants: values that do not depend on inputs are computed now, by numpy, one value at a time.

TVM's ``FoldConstant`` compiles a kernel for each value that it folds; numpy needs none.
"""

from __future__ import annotations

import numpy as np
from tvm import ir, relax, tirx

from .. import reference
from .empty import is_empty
from .rewrite import ANY_OP, Rewrite
from .scope import (
    GETITEM,
    Call,
    Expr,
    Scope,
    dtype_of,
    is_constant,
    op,
    op_name,
    rank_of,
    static_dims,
    static_shape,
)
from .value_number import value_number
from .why_not import WhyNot

_FREE_ELEMENTS = 1 << 18
"""A folded value may be larger than its operands up to this number of elements (1 MiB of float32); a larger broadcast
would bloat the program.
"""

_COPY = "relax.to_vdevice"

_COPIES = (_COPY, "relax.hint_on_device")

_KEEP = ("relax.builtin.", "relax.memory.", "relax.vm.", "relax.nn.dropout", *_COPIES)
"""Operators with a result that depends on more than the values of their operands."""

_BROADCASTING = (
    "relax.add",
    "relax.divide",
    "relax.equal",
    "relax.greater",
    "relax.greater_equal",
    "relax.less",
    "relax.less_equal",
    "relax.maximum",
    "relax.minimum",
    "relax.multiply",
    "relax.not_equal",
    "relax.subtract",
    "relax.where",
)
"""Operators with a result that stays the same when an operand of no dimensions gets one."""


def constant(array: np.ndarray, dtype: str | None = None) -> Expr:
    """A Relax constant that holds ``array``."""
    return relax.const(np.asarray(array, order="C"), dtype or str(array.dtype))


def stretched_to(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """``array`` broadcast to ``shape``, or None if it varies along further axes."""
    further = max(0, array.ndim - len(shape))
    if any(size != 1 for size in array.shape[:further]):
        return None
    inner = array.reshape(array.shape[further:])
    fits = all(a in (1, b) for a, b in zip(inner.shape[::-1], shape[::-1], strict=False))
    return np.broadcast_to(inner, shape) if fits else None


def is_normal(number: float, dtype: str) -> bool:
    """Whether ``number`` neither overflows in ``dtype`` nor is 0 or denormal there, where it loses bits."""
    limits = limits_of(dtype)
    return float(limits.tiny) <= abs(number) <= float(limits.max)


def limits_of(dtype: str) -> np.finfo:
    """The range of a floating point type: for types that numpy does not have, such as bfloat16, that of float32."""
    return np.finfo(dtype if dtype in ("float16", "float32", "float64") else "float32")


def multiplied(array: np.ndarray, factor: np.ndarray | float) -> np.ndarray | None:
    """``array * factor`` in the type of ``array``, or None if a finite number does not stay finite."""
    wide = np.promote_types(array.dtype, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        made = (array * np.asarray(factor).astype(wide)).astype(array.dtype)
    return None if np.any(np.isfinite(array) & ~np.isfinite(made)) else made


def _fold(call: Expr, scope: Scope) -> Expr | WhyNot | None:
    """Any operator on constants -> its result as a constant, on its device, unless the result is much larger.

    Equal computations become one constant.
    """
    if not isinstance(call, relax.Call) or op_name(call).startswith(_KEEP) or is_empty(call):
        return None
    tensors = isinstance(call.ty, (relax.TensorType, relax.TupleType))
    operands = [_literal(arg, scope) or arg for arg in call.args]
    if not tensors or not operands or not all(map(_is_known, operands)):
        return None
    number = value_number(call)
    if number is not None and number in scope.folded:
        return scope.folded[number]
    args = [_known(arg, scope) for arg in operands]
    why = _why_not_worth_storing(call, args) or reference.why_not(call, scope.mod)
    if why is not None:
        return WhyNot(why)
    try:
        folded = _as_constant(reference.evaluate(call, args, scope.mod), call.ty)
    except reference.Unsupported as refusal:
        return WhyNot(str(refusal))
    if number is not None:
        scope.folded[number] = folded
    return folded


def _is_known(arg: Expr) -> bool:
    """Whether the operand does not depend on the program's inputs."""
    if isinstance(arg, relax.Tuple):
        return all(_is_known(field) for field in arg.fields)
    if isinstance(arg, relax.ShapeExpr):
        return static_dims(arg) is not None
    return not isinstance(arg, relax.Var)


def _known(arg: Expr, scope: Scope) -> object:
    """The operand as ``reference`` takes it: arguments that are written in the call are read from the call."""
    if isinstance(arg, relax.Tuple):
        return tuple(_known(field, scope) for field in arg.fields)
    return scope.array(arg)


def _why_not_worth_storing(call: Call, args: object) -> str | None:
    """Why the result is not stored: it is large, and has more elements than its operands together."""
    fields = getattr(call.ty, "fields", [call.ty])
    count = sum(_elements(field) for field in fields)
    if count <= max(_FREE_ELEMENTS, _held(args)):
        return None
    elements = "an unknown number of" if count == float("inf") else f"{count:.0f}"
    return f"{op_name(call).removeprefix('relax.')} makes {elements} elements of {_held(args):.0f}"


def _elements(ty: ir.Type) -> float:
    if not isinstance(ty, relax.TensorType):
        return 0.0
    dims = static_dims(ty.shape) if isinstance(ty.shape, relax.ShapeExpr) else None
    return float("inf") if dims is None else float(np.prod(dims, dtype=np.float64))


def _held(args: object) -> float:
    if isinstance(args, (list, tuple)):
        return sum(_held(arg) for arg in args)
    return args.size if isinstance(args, np.ndarray) else 0.0


def _as_constant(value: np.ndarray | tuple, ty: ir.Type) -> Expr:
    if isinstance(value, tuple):
        types = getattr(ty, "fields", [ty] * len(value))
        return relax.Tuple([_as_constant(field, part) for field, part in zip(value, types, strict=True)])
    made, device = constant(np.asarray(value)), getattr(ty, "vdevice", None)
    return made if device is None else op.to_vdevice(made, device)


def _literal(arg: Expr, scope: Scope) -> Expr | None:
    """The constant that an operand is a copy of on a device, or None for another operand."""
    copy = scope.call(arg, _COPY)
    source = None if copy is None else scope.value(copy.args[0])
    return source if source is not None and is_constant(source) else None


def _read_in_place(call: Expr, scope: Scope) -> Expr | None:
    """matmul(x, to_vdevice(constant, the device of x)) -> matmul(x, constant): literals are wherever they are read."""
    if not isinstance(call, relax.Call) or not isinstance(call.op, ir.Op) or op_name(call) in _COPIES:
        return None
    literals = [_literal(arg, scope) for arg in call.args]
    if not any(literals):
        return None
    args = [arg if literal is None else literal for arg, literal in zip(call.args, literals, strict=True)]
    is_placed = any(isinstance(arg, relax.Var) and getattr(arg.ty, "vdevice", None) for arg in args)
    return relax.Call(call.op, args, call.attrs, call.ty_args) if is_placed else None


def _shape_of(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """shape_of(x) -> the shape itself, where ``x`` has a known one."""
    shape = getattr(call.args[0].ty, "shape", None)
    if isinstance(shape, relax.ShapeExpr):
        return shape
    return WhyNot(f"the type of {scope.title(call.args[0])} does not say its shape")


def _shape_to_tensor(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """shape_to_tensor(R.shape([2, 3])) -> const([2, 3])."""
    shape = scope.value(call.args[0])
    if not isinstance(shape, relax.ShapeExpr):
        return None
    dims = static_dims(shape)
    return WhyNot("the shape has symbolic dimensions") if dims is None else constant(np.array(dims, "int64"))


def _tensor_to_shape(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """tensor_to_shape(const([2, 3])) -> R.shape([2, 3]), and shape_to_tensor before it is undone."""
    array = scope.array(call.args[0])
    if array is not None:
        return relax.ShapeExpr([tirx.IntImm("int64", int(dim)) for dim in array])
    source = scope.call(call.args[0], "relax.shape_to_tensor")
    shape = None if source is None else scope.value(source.args[0])
    if isinstance(shape, relax.ShapeExpr):
        return shape
    return WhyNot(f"the shape is read from {scope.title(call.args[0])}, which is not constant")


def _project(item: relax.TupleGetItem, scope: Scope) -> Expr | None:
    """(a, b)[0] -> a."""
    source = scope.value(item.tuple_value)
    return source.fields[item.index] if isinstance(source, relax.Tuple) else None


def _printable(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """where(c, x, R.const(-inf)) -> where(c, x, a constant of shape (1,)).

    Scalars that are infinite or not a number print as text that does not parse; those of one dimension are
    stored with the metadata, and broadcast alike.
    """
    odd = [_is_odd_scalar(arg, scope) for arg in call.args]
    if not any(odd):
        return None
    if rank_of(call) < 1:
        return WhyNot("an operand is not finite, but the result has no axis that it could have too")
    args = [
        constant(np.full(1, scope.scalar(arg)), dtype_of(arg)) if this else arg
        for arg, this in zip(call.args, odd, strict=True)
    ]
    return relax.Call(call.op, args, call.attrs)


def _is_odd_scalar(arg: Expr, scope: Scope) -> bool:
    number = scope.scalar(arg) if is_constant(arg) and static_shape(arg) == () else None
    return number is not None and not np.isfinite(number)


PROJECT_TUPLE = Rewrite("project_tuple", (GETITEM,), _project)
FOLD_SHAPE_OF = Rewrite("fold_shape_of", ("relax.shape_of",), _shape_of)
FOLD_SHAPE_TO_TENSOR = Rewrite("fold_shape_to_tensor", ("relax.shape_to_tensor",), _shape_to_tensor)
FOLD_TENSOR_TO_SHAPE = Rewrite("fold_tensor_to_shape", ("relax.tensor_to_shape",), _tensor_to_shape)
FOLD_CONSTANTS = Rewrite("fold_constants", (ANY_OP,), _fold)
READ_LITERALS_IN_PLACE = Rewrite("read_literals_in_place", (ANY_OP,), _read_in_place)
PRINTABLE_SCALARS = Rewrite("printable_scalars", _BROADCASTING, _printable)
