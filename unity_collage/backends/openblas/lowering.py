"""The OpenBLAS backend's side of the tables: matrix products, with a scale and an addend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tvm import relax

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


def step(call: relax.Call) -> NativeStep | str:
    """One operator as one product of Relax values, or the reason why not."""
    entry = ENTRIES.get(op_name(call))
    if entry is None:
        return f"{op_name(call)} is no matrix product"
    return _checked(entry(call))


def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with ``call``, whose ``args[operand]`` is its result, as its scale or addend, or why not."""
    name = op_name(call)
    if name not in ("relax.multiply", "relax.divide", "relax.add"):
        return f"gemm has no {name.removeprefix('relax.')} behind it"
    if step.arg("bias") is not None:
        return "gemm adds last"
    if shape_of(call) != shape_of(call.args[operand]):
        return "the operator broadcasts the product"
    grown = _with_addend(step, call, operand) if name == "relax.add" else _scaled(step, call, operand)
    if isinstance(grown, str):
        return grown
    return grown.with_result(replace(grown.result, buffer=call))


def absorbed_input(step: NativeStep, value: relax.Expr, producer: relax.Expr) -> NativeStep | str:
    """The step that reads ``value`` where its producer, a layout change, reads it, or why not."""
    return _checked(read_through(step, value, producer))


def absorbed_output(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that writes its result as ``call``, a permutation or reshape, would leave it, or why not."""
    return _checked(write_through(step, call))


def lower(functions: Sequence[relax.Function], names: Sequence[str]) -> tuple[str, bytearray]:
    """Functions of operators to the JSON of their programs and the blob of their constants.

    Raises NotLowerable, naming the function and the operator, for what is no product.
    """
    return lower_functions(functions, names, _TABLES)


def _scaled(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """alpha times a number: c = alpha * a * b."""
    number = scalar_of(call.args[1 - operand])
    if number is None:
        return "the factor is not a scalar constant"
    if op_name(call) == "relax.divide":
        if operand == 1 or number == 0:
            return "gemm divides by nothing but a number"
        number = 1.0 / number
    return step.with_attrs(alpha=step.attr("alpha") * number)


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
        "no strides describe the addend as the product lies"
        if view is None
        else step.with_arg("bias", unrepeated(view, step.result))
    )


def _checked(made: NativeStep | str) -> NativeStep | str:
    if isinstance(made, str):
        return made
    return why_not_matrices(made) or made


def why_not_matrices(step: NativeStep) -> str | None:
    """Why gemm cannot address the operands of a step, or None when it can."""
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
    return "OpenBLAS copies no tensors"


_TABLES = Tables(step, fused, absorbed_input, absorbed_output, _no_copy)
