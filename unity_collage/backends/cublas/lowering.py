"""The lowering tables of cuBLASLt: matrix products with scale, bias, addend and activation.

A function names by its ``Composite`` label which of the library's algorithms it runs: ``cublas.algorithm0`` is the one
that the library ranks first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from tvm import relax

from ..native.absorb import read_through, write_through
from ..native.labels import algorithm_label
from ..native.lowering import Tables, lower_function
from ..native.program import Blob, NativeStep, View, programs_json
from ..native.values import dtype_of, op_name, scalar_of, shape_of, static_shape
from ..native.views import broadcast, remap
from .products import HALVES, pointwise_convolution, product

ENTRIES: Mapping[str, Callable[[relax.Call], NativeStep | str]] = {
    "relax.matmul": product,
    "relax.nn.conv1d": pointwise_convolution,
    "relax.nn.conv2d": pointwise_convolution,
    "relax.nn.conv3d": pointwise_convolution,
}

ANCHORS = frozenset(ENTRIES)
"""Operators that are matrix products."""

_ACTIVATIONS: Mapping[str, str] = {
    "relax.nn.relu": "relu",
    "relax.nn.gelu_tanh": "gelu_tanh",
    "relax.nn.gelu": "gelu_tanh",
}
"""Operator -> epilogue. Like other libraries' fused ReLU, that of cuBLASLt may turn a NaN into 0."""

_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def step(call: relax.Call, algorithm: int = 0, tf32: bool = False) -> NativeStep | str:
    """One operator as one matrix product by the library's ``algorithm``, or the reason why it is not one.

    With ``tf32``, float32 operands are rounded to TensorFloat-32; others are declined.
    """
    entry = ENTRIES.get(op_name(call))
    if entry is None:
        return f"{op_name(call)} is not a matrix product"
    made = entry(call)
    if isinstance(made, str):
        return made
    if tf32 and made.result.dtype != "float32":
        return f"the product is {made.result.dtype}, TensorFloat-32 is for float32"
    return _checked(made.with_attrs(algorithm=algorithm, tf32=int(tf32)))


ALGORITHMS: Mapping[str, Callable[[relax.Call], NativeStep | str]] = {
    **{f"cublas.algorithm{k}": partial(step, algorithm=k) for k in range(3)},
    **{f"cublas.tf32_algorithm{k}": partial(step, algorithm=k, tf32=True) for k in range(3)},
}
"""By label, :func:`step` for the best algorithms in the library's ranking."""


def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with ``call`` as its next part, or the reason why not; ``args[operand]`` of the call is the step's
    result.

    c = epilogue(alpha * a @ b + addend + bias)
    """
    name = op_name(call)
    if name not in _FUSED and name not in _ACTIVATIONS:
        return f"gemm takes no {name.removeprefix('relax.')} behind it"
    if step.attr("epilogue") != "none":
        return "gemm takes no operator behind the activation"
    if shape_of(call) != shape_of(call.args[operand]) or dtype_of(call) != step.result.dtype:
        return "the operator changes shape or dtype of the product"
    grown = _FUSED[name](step, call, operand) if name in _FUSED else _activated(step, call)
    if isinstance(grown, str):
        return grown
    return _checked(grown.with_result(replace(grown.result, buffer=call)))


def absorbed_input(step: NativeStep, value: relax.Expr, producer: relax.Expr) -> NativeStep | str:
    """The step that reads the operand of ``producer``, a layout change, instead of ``value``, or the reason why not."""
    return _checked(read_through(step, value, producer))


def absorbed_output(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that writes its result as ``call``, a permutation or reshape, would leave it, or the reason why not."""
    return _checked(write_through(step, call))


def lower(functions: Sequence[relax.Function], names: Sequence[str]) -> tuple[str, np.ndarray]:
    """From functions to the JSON of their programs and the blob of their constants.

    Raises NotLowerable, with the names of the function and the operator, for an operator that is not a product.
    """
    blob = Blob()
    programs = [
        lower_function(f, name, [_tables(f, name)], blob) for f, name in zip(functions, names, strict=True)
    ]
    return programs_json(programs), blob.taken()


def _scaled(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """alpha times a number: c = alpha * a @ b."""
    if step.arg("bias") is not None or step.arg("addend") is not None:
        return "gemm takes no factor behind the sum"
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
    """One number for each column is the bias; a tensor like the product is the addend."""
    other = call.args[1 - operand]
    if dtype_of(other) != step.result.dtype or shape_of(other) is None:
        return f"the addend is {dtype_of(other)} or has no static shape, the product is {step.result.dtype}"
    if other == call.args[operand]:
        return "both operands are the product"
    strides = broadcast(static_shape(other), static_shape(call))
    view = None if strides is None else remap(step.result, static_shape(call), strides, other)
    if view is None:
        return "no strides describe the addend in the layout of the product"
    repeated = [extent != 1 and step == 0 for extent, step in zip(view.dims, view.strides, strict=True)]
    if step.arg("bias") is None and _is_bias(view):
        return step.with_arg("bias", replace(view, dims=view.dims[-1:], strides=view.strides[-1:]))
    if step.arg("addend") is None and not any(repeated):
        return step.with_arg("addend", view)
    return "the addend is neither a free bias of the columns nor a free matrix like the product"


def _is_bias(view: View) -> bool:
    """Whether all rows of a view are the same contiguous row."""
    moving = [axis for axis, extent in enumerate(view.dims) if extent != 1 and view.strides[axis] != 0]
    last = len(view.dims) - 1
    return moving in ([], [last]) and (view.dims[last] == 1 or view.strides[last] == 1)


def _activated(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The activation as epilogue.

    cuBLASLt's GELU is the tanh form. It differs from the form with erf by less than 5e-4, which rounding to 16 bits
    hides and float32 does not.
    """
    if op_name(call) == "relax.nn.gelu" and step.result.dtype not in HALVES:
        return f"cuBLASLt's GELU is the tanh form, and {step.result.dtype} tells it from the form with erf"
    return step.with_attrs(epilogue=_ACTIVATIONS[op_name(call)])


_FUSED: Mapping[str, Callable[[NativeStep, relax.Call, int], NativeStep | str]] = {
    "relax.multiply": _scaled,
    "relax.divide": _scaled,
    "relax.add": _with_addend,
}


def _checked(made: NativeStep | str) -> NativeStep | str:
    return made if isinstance(made, str) else why_not_matrices(made) or made


def why_not_matrices(step: NativeStep) -> str | None:
    """Why gemm cannot address the operands or the result of a step, or None when it can."""
    for name, view in step.args:
        if name == "bias":
            if view.dims[-1] != 1 and view.strides[-1] != 1:
                return "the bias is not contiguous"
        elif name in ("a", "b"):
            if not _are_lines(view, -2, -1) and not _are_lines(view, -1, -2):
                return f"neither rows nor columns of {name} are contiguous"
        elif not _are_lines(view, -2, -1):
            return f"the rows of the {'result' if name == 'c' else name} are not contiguous"
    return None


def _are_lines(view: View, outer: int, inner: int) -> bool:
    """Whether the elements along the axis ``inner`` are contiguous, and the lines along ``outer`` do not overlap."""
    length, count = view.dims[inner], view.dims[outer]
    return (length == 1 or view.strides[inner] == 1) and (count == 1 or view.strides[outer] >= length)


def _tables(func: relax.Function, name: str) -> Tables:
    label = algorithm_label(func, name, ALGORITHMS)
    return Tables(ALGORITHMS[label], fused, absorbed_input, absorbed_output, _no_copy)


def _no_copy(_value: relax.Expr, _producer: relax.Expr) -> str:
    return "cuBLASLt does not copy tensors"
