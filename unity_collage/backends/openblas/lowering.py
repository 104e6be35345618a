"""The lowering tables of OpenBLAS: matrix products with a scale and an addend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from ...graph.free_sizes import for_all_sizes
from ..native.absorb import read_through, write_through
from ..native.lowering import Tables, lower_functions
from ..native.program import NativeStep, View
from ..native.values import dtype_of, op_name, scalar_of, shape_of, static_shape
from ..native.views import broadcast, remap, unrepeated
from .products import pointwise_convolution, product

ENTRIES: Mapping[str, Callable[[relax.Call], NativeStep | str]] = {
    "relax.matmul": product,
    "relax.nn.conv1d": pointwise_convolution,
    "relax.nn.conv2d": pointwise_convolution,
    "relax.nn.conv3d": pointwise_convolution,
}

ANCHORS = frozenset(ENTRIES)
"""Operators that are matrix products."""

_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


@for_all_sizes
def step(call: relax.Call) -> NativeStep | str:
    """One operator as one matrix product, or the reason why it is not one."""
    entry = ENTRIES.get(op_name(call))
    if entry is None:
        return f"{op_name(call)} is not a matrix product"
    return _checked(entry(call))


@for_all_sizes
def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with ``call``, which reads its result as ``args[operand]``, as scale or addend, or why not."""
    name = op_name(call)
    if name not in ("relax.multiply", "relax.divide", "relax.add"):
        return f"gemm takes no {name.removeprefix('relax.')} behind it"
    if step.arg("bias") is not None:
        return "gemm takes no operator behind the sum"
    if shape_of(call) != shape_of(call.args[operand]):
        return "the operator broadcasts the product"
    grown = _with_addend(step, call, operand) if name == "relax.add" else _scaled(step, call, operand)
    if isinstance(grown, str):
        return grown
    return grown.with_result(replace(grown.result, buffer=call))


@for_all_sizes
def absorbed_input(step: NativeStep, value: relax.Expr, producer: relax.Expr) -> NativeStep | str:
    """The step that reads the operand of ``producer``, a layout change, instead of ``value``, or the reason why not."""
    return _checked(read_through(step, value, producer))


@for_all_sizes
def absorbed_output(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that writes its result as ``call``, a permutation or reshape, would leave it, or the reason why not."""
    return _checked(write_through(step, call))


def lower(functions: Sequence[relax.Function], names: Sequence[str]) -> tuple[str, np.ndarray]:
    """From functions to the JSON of their programs and the blob of their constants.

    Raises NotLowerable, with the names of the function and the operator, for an operator that is not a product.
    """
    return lower_functions(functions, names, _TABLES)


def _scaled(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """alpha times a number: c = alpha * a * b."""
    number = scalar_of(call.args[1 - operand])
    if number is None:
        return "the factor is not a scalar constant"
    if op_name(call) == "relax.divide":
        if operand == 1 or number == 0:
            return "gemm divides the product by a nonzero constant only"
        number = 1.0 / number
    alpha = step.attr("alpha") * number
    if not _SMALLEST <= abs(alpha) <= _LARGEST:  # for a factor of 0 it would not read its operands
        return f"the factor is {alpha}, gemm takes a normal float32"
    return step.with_attrs(alpha=alpha)


def _with_addend(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """c = alpha * a * b + bias, the bias repeated as numpy broadcasts."""
    other = call.args[1 - operand]
    if dtype_of(other) != "float32" or shape_of(other) is None:
        return f"the addend is {dtype_of(other)} or has no static shape, sgemm takes float32"
    if other == call.args[operand]:
        return "both operands are the product"
    shape = static_shape(call)
    strides = broadcast(static_shape(other), shape)
    view = None if strides is None else remap(step.result, shape, strides, other)
    return (
        "no strides describe the addend in the layout of the product"
        if view is None
        else step.with_arg("bias", unrepeated(view, step.result))
    )


def _checked(made: NativeStep | str) -> NativeStep | str:
    if isinstance(made, str):
        return made
    return why_not_matrices(made) or made


def why_not_matrices(step: NativeStep) -> str | None:
    """Why gemm cannot address the operands or the result of a step, or None when it can."""
    for name in ("a", "b"):
        view = step.arg(name)
        assert view is not None
        if all(extent != 1 and s != 1 for extent, s in zip(view.dims[-2:], view.strides[-2:], strict=True)):
            return f"neither rows nor columns of {name} are contiguous"
    result = step.result
    return None if _rows_are_contiguous(result) else "the rows of the result are not contiguous"


def _rows_are_contiguous(view: View) -> bool:
    return view.dims[-1] == 1 or view.strides[-1] == 1


def _no_copy(_value: relax.Expr, _producer: relax.Expr) -> str:
    return "OpenBLAS does not copy tensors"


_TABLES = Tables(step, fused, absorbed_input, absorbed_output, _no_copy)
