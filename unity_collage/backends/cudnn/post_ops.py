"""Operators behind a convolution as its bias, or as pointwise operations of the same graph."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from ..native.casts import is_cast
from ..native.program import NativeStep, PostOp, View
from ..native.values import dtype_of, op_name, shape_of, static_shape
from ..native.views import broadcast, remap, same_strides, unrepeated
from ..onednn import eltwise
from .types import NARROW, WIDE, why_not_operand

FUNCTIONS = frozenset({"relu", "swish", "gelu_erf", "gelu_tanh", "logistic", "tanh", "clip_v2", "linear"})
"""Functions by their names in the programs."""

_BINARY = {"relax.add": "add", "relax.multiply": "mul"}


def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with ``call``, which reads its result as ``args[operand]``, as bias or pointwise operation, or the
    reason why not. Sums and functions stay in float32 until the result is stored.
    """
    if is_cast(call):
        return _narrowed(step, call)
    result = call.args[operand]
    if shape_of(call) != shape_of(result) or dtype_of(call) != dtype_of(result):
        return "the operator changes shape or dtype of the result"
    functions = eltwise.functions_of(call, operand)
    if not isinstance(functions, str):
        grown = _with_functions(step, functions)
    elif op_name(call) in _BINARY:
        grown = _with_operand(step, call, operand)
    else:
        return f"cuDNN is given no {op_name(call).removeprefix('relax.')} behind a convolution"
    return grown if isinstance(grown, str) else grown.with_result(replace(grown.result, buffer=call))


def read_widened(step: NativeStep, value: relax.Expr, cast: relax.Call) -> NativeStep | str:
    """The step that reads operands after the first operation before ``cast``, which widens them."""
    data = cast.args[0]
    if dtype_of(data) not in NARROW or dtype_of(value) != WIDE:
        return f"a cast of {dtype_of(data)} to {dtype_of(value)}"
    products = ("src", "weights", "query", "key", "value")
    if any(view.buffer == value for name, view in step.args if name in products):
        return "a product reads its operands as they are"
    if all(view.buffer != value for view in step.views()):
        return "the step does not read it"
    return step.map_views(lambda v: replace(v, buffer=data, dtype=dtype_of(data)) if v.buffer == value else v)


def _narrowed(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that rounds its float32 result, once, to the type of its source."""
    source = step.arg("src")
    assert source is not None
    if dtype_of(call.args[0]) != WIDE or dtype_of(call) != source.dtype or shape_of(call) is None:
        return (
            f"a cast of {dtype_of(call.args[0])} to {dtype_of(call)} behind a convolution of {source.dtype}"
        )
    return step.with_result(replace(step.result, buffer=call, dtype=dtype_of(call)))


def _with_functions(step: NativeStep, functions: tuple[PostOp, ...]) -> NativeStep | str:
    unknown = [function.algorithm for function in functions if function.algorithm not in FUNCTIONS]
    return f"cuDNN is given no function {unknown[0]}" if unknown else step.then(*functions)


def _with_operand(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with the other operand of ``call``: like the result, or one number for each channel or for all.

    One number for each channel that is added first is the bias.
    """
    other, algorithm = call.args[1 - operand], _BINARY[op_name(call)]
    if reason := why_not_operand("the other operand", other):
        return reason
    if other == call.args[operand]:
        return "both operands are the result"
    strides = broadcast(static_shape(other), static_shape(call))
    view = None if strides is None else remap(step.result, static_shape(call), strides, other)
    if view is None:
        return "no strides describe the operand in the layout of the result"
    view = replace(unrepeated(view, step.result), dtype=dtype_of(other))
    per_channel = _is_per_channel(view, step.result)
    first = step.arg("bias") is None and not step.post_ops
    if first and algorithm == "add" and per_channel and view.dims[1] == step.result.dims[1]:
        return step.with_arg("bias", replace(view, dims=view.dims[1:2], strides=(1,)))
    if not per_channel and not same_strides(view, step.result):
        return "the operand is neither like the result nor one number for each channel"
    return step.then(PostOp("binary", algorithm, arg=view))


def _is_per_channel(view: View, result: View) -> bool:
    """Whether it has one number for each channel, next to each other, or one for all."""
    others = all(extent == 1 for axis, extent in enumerate(view.dims) if axis != 1)
    return others and view.dims[1] in (1, result.dims[1]) and (view.dims[1] == 1 or view.strides[1] == 1)
