"""Which precision each operator needs for its operands."""

from __future__ import annotations

from enum import Enum

from tvm import ir, relax
from tvm.relax import Expr


class Role(Enum):
    """How an operator takes part in a program of mixed precision."""

    PRODUCT = "product"
    """Multiplies narrow operands and adds up in float32: its result is float32."""
    MOVING = "moving"
    """Its result holds elements of its operands: narrow ones in, narrow ones out, and nothing is rounded."""
    FUSING = "fusing"
    """Element by element in float32: a kernel takes it in with its neighbours, in registers."""
    WIDE = "wide"
    """All else: float32 in, float32 out; no kernel takes it in with a product before it."""


_PRODUCTS = frozenset({"nn.conv1d", "nn.conv2d", "nn.conv3d", "matmul"})

_MOVING = frozenset(
    {
        "broadcast_to", "concat", "expand_dims", "flatten", "flip", "layout_transform", "nn.batch_flatten",
        "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "permute_dims", "repeat", "reshape", "split", "squeeze",
        "stack", "strided_slice", "tile",
    }
)  # fmt: skip

_FUSING = frozenset(
    {
        "abs", "add", "clip", "divide", "erf", "exp", "log", "maximum", "minimum", "multiply", "negative",
        "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.silu", "nn.softplus", "power", "round", "rsqrt",
        "sigmoid", "sqrt", "square", "subtract", "tanh",
    }
)  # fmt: skip

SELECTING = frozenset({"nn.relu"})
"""Fusing operators that round nothing: narrow operands stay narrow, as in MOVING."""


_SAFE = frozenset(
    {
        "abs", "add", "clip", "divide", "image.resize2d", "image.resize3d", "max", "maximum", "mean", "min", "minimum",
        "multiply", "negative", "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d",
        "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.gelu", "nn.gelu_tanh", "nn.group_norm",
        "nn.instance_norm", "nn.layer_norm", "nn.leakyrelu", "nn.pad", "nn.prelu", "nn.relu", "nn.rms_norm", "nn.silu",
        "nn.softmax", "sigmoid", "subtract", "take", "tanh", "where",
    }
)  # fmt: skip

ADDITIVE = frozenset({"add", "maximum", "minimum", "subtract", "where"})
"""Operators whose constant may be replaced by the largest number of a type: what is masked stays masked."""


def is_safe(value: Expr) -> bool:
    """Whether 16 bits are enough for operands and result, if sums inside are added up in float32.

    Squares, powers, exponentials, logarithms, roots and sums are not safe: they leave the range of float16 easily.
    """
    name = name_of(value)
    return name in _SAFE or name in _MOVING


def is_table(value: Expr) -> bool:
    """Whether a value is rows of a constant table, such as an embedding."""
    return (
        name_of(value) == "take"
        and isinstance(value, relax.Call)
        and isinstance(value.args[0], ir.GenericConst)
    )


def role_of(value: Expr) -> Role:
    """The role of a binding's value; whatever is not a call of an operator is WIDE."""
    name = name_of(value)
    if name in _PRODUCTS:
        return Role.PRODUCT
    if name in _MOVING:
        return Role.MOVING
    return Role.FUSING if name in _FUSING else Role.WIDE


def name_of(value: Expr) -> str:
    """The name of the operator that a value is a call of, without ``relax.``, or nothing."""
    op = value.op if isinstance(value, relax.Call) else None
    return op.name.removeprefix("relax.") if isinstance(op, ir.Op) else ""


def is_float32(expr: Expr) -> bool:
    """Whether an expression is a tensor of float32, or a tuple of nothing else."""
    return _is_float32(expr.ty)


def _is_float32(ty: ir.Type) -> bool:
    if isinstance(ty, relax.TupleType):
        return bool(ty.fields) and all(map(_is_float32, ty.fields))
    return isinstance(ty, relax.TensorType) and str(ty.dtype) == "float32"
