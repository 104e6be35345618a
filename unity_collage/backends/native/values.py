"""Relax values as the lowerings need them: shapes, dtypes, constants, whole views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from ...graph.calls import op_name as op_name
from ...graph.free_sizes import is_free, shape_with_sizes
from .program import ScratchTensor, View
from .views import row_major

_LARGEST = float(np.finfo(np.float32).max)
_OF_NUMPY = frozenset(("float16", "float32", "float64", "int8", "uint8", "int32", "int64"))


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of a tensor, or of the first field of a tuple; None if it is not known.

    An extent that is known only when the program runs is a :class:`...graph.free_sizes.Size`, which computes as an int
    does.
    """
    if isinstance(value, ScratchTensor):
        return value.shape
    ty = _tensor_type(value)
    return None if ty is None else shape_with_sizes(ty)


def static_shape(value: Any) -> tuple[int, ...]:
    """The shape of a tensor for which :func:`why_not_static` or :func:`why_not_sized` returns None."""
    shape = shape_of(value)
    assert shape is not None
    return shape


def dtype_of(value: Any) -> str:
    """The dtype of a tensor, or of the first field of a tuple; ``""`` if it is unknown."""
    if isinstance(value, ScratchTensor):
        return value.dtype
    ty = _tensor_type(value)
    return "" if ty is None else str(ty.dtype)


def why_not_static(what: str, value: Any) -> str | None:
    """Why a tensor, called ``what``, has no static shape or no elements, or None."""
    shape = shape_of(value)
    if shape is None or any(is_free(extent) for extent in shape):
        return f"{what} has no static shape"
    return f"{what} is empty" if 0 in shape else None


def why_not_sized(what: str, value: Any) -> str | None:
    """Why a tensor, called ``what``, has neither a static shape nor one of free sizes, or is empty; or None."""
    shape = shape_of(value)
    if shape is None:
        return f"the shape of {what} is not known"
    return f"{what} is empty" if 0 in shape else None


def is_tensor(value: Any) -> bool:
    return isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)


def tensors(call: relax.Call) -> list[relax.Expr]:
    """The tensor operands of a call in order, including those in tuples."""
    found: list[relax.Expr] = []
    for arg in call.args:
        fields = arg.fields if isinstance(arg, relax.Tuple) else [arg]
        found.extend(field for field in fields if is_tensor(field))
    return found


def scalar_of(value: Any) -> float | None:
    """The value of a primitive value or of a constant with one element; None for anything else."""
    if isinstance(value, (tirx.IntImm, tirx.FloatImm)):
        return float(value.value)
    if (
        isinstance(value, ir.GenericConst)
        and shape_of(value) is not None
        and math.prod(static_shape(value)) == 1
    ):
        return float(array_of(value).astype(np.float64).reshape(()))
    return None


def why_not_scale(scale: float) -> str | None:
    """Why the scores of an attention cannot be multiplied by ``scale``; the executors read finite float32 only."""
    if abs(scale) <= _LARGEST:
        return None
    return f"the factor of the scores is {scale}, attention takes a finite float32"


def array_of(constant: Any) -> np.ndarray:
    """The content of a constant, dense; it is not copied if numpy has its type."""
    tensor = constant.value
    if str(tensor.dtype) in _OF_NUMPY:
        return np.ascontiguousarray(np.from_dlpack(tensor))
    return np.ascontiguousarray(tensor.numpy())


def view_of(value: Any, dims: Sequence[int] | None = None, strides: Sequence[int] | None = None) -> View:
    """A dense tensor as a view, with its own dims or with those that are given; a scalar has one dim."""
    dims = tuple(dims or static_shape(value) or (1,))
    return View(value, dims, tuple(strides or row_major(dims)), view_dtype(dtype_of(value)))


def view_dtype(dtype: str) -> str:
    """The dtype for a primitive: a bool is a byte of 0 or 1."""
    return "uint8" if dtype == "bool" else dtype


def ints(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def attrs_of(call: relax.Call) -> Any:
    """The attributes of a call. TVM declares their fields only at run time."""
    return call.attrs


def _tensor_type(value: Any) -> Any:
    ty: Any = value.ty
    fields: Any = getattr(ty, "fields", None)
    ty = fields[0] if fields else ty
    return ty if isinstance(ty, relax.TensorType) else None
