"""Operators behind a primitive as its bias or post-operations, if oneDNN 3.2 takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm import relax

from ..native.program import NativeStep, PostOp, View
from ..native.values import dtype_of, op_name, shape_of, static_shape
from ..native.views import (
    broadcast,
    is_channels_first,
    is_channels_last,
    is_dense,
    remap,
    same_strides,
    unrepeated,
)
from . import eltwise
from .binary import ALGORITHMS
from .limits import why_not_operand
from .whole_numbers import BYTES

MOST = 32
"""oneDNN's limit of post-operations."""


@dataclass(frozen=True, slots=True)
class Accepts:
    """The post-operations for which a primitive has a kernel other than the reference kernel."""

    eltwise: frozenset[str] | None = None
    """The algorithms, or None for all."""
    operands: frozenset[str] = frozenset()
    """The forms of a binary operand, as :func:`_forms` names them."""
    bias: bool = False


_ALL = frozenset({"scalar", "channel", "full"})

ACCEPTS: Mapping[str, Accepts] = {
    "convolution": Accepts(operands=_ALL, bias=True),
    "deconvolution": Accepts(operands=_ALL, bias=True),
    "matmul": Accepts(operands=frozenset({"scalar", "row", "full"}), bias=True),
    "pooling": Accepts(operands=_ALL),
    "binary": Accepts(operands=_ALL),
    "reduction": Accepts(operands=_ALL),
    "resampling": Accepts(operands=frozenset({"scalar", "channel"})),
    "softmax": Accepts(),
    "batch_normalization": Accepts(eltwise=frozenset({"relu"})),
}


def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with ``call``, which reads its result as ``args[operand]``, as bias or post-operation, or the reason
    why not.
    """
    if step.primitive not in ACCEPTS:
        return f"oneDNN's {step.primitive} takes no post-operations"
    result = call.args[operand]
    if dtype_of(call) != dtype_of(result):
        return f"the result is {dtype_of(call)}"
    if dtype_of(result) != "float32":
        return f"post-operations compute in float32, and the result is {dtype_of(result)}"
    functions = eltwise.functions_of(call, operand)
    if isinstance(functions, str) and op_name(call) in ALGORITHMS:
        grown = _with_operand(step, call, operand)
    else:
        grown = functions if isinstance(functions, str) else with_functions(step, functions)
    if isinstance(grown, str):
        return grown
    if len(grown.post_ops) > MOST:
        return f"oneDNN takes {MOST} post-operations"
    return grown.with_result(replace(grown.result, buffer=call))


def why_not_operands(step: NativeStep) -> str | None:
    """Why oneDNN does not take the binary post-operations of a step, or only in a reference kernel, or None."""
    forms = ACCEPTS[step.primitive].operands if step.primitive in ACCEPTS else frozenset()
    if step.primitive == "matmul" and not is_channels_first(step.result):
        forms &= {"scalar"}  # with others the kernel that oneDNN 3.2 chooses for such a result crashes
    for post in step.post_ops:
        if post.arg is not None and not forms & _forms(post.arg, step):
            return f"{step.primitive} takes no post-operand of dims {post.arg.dims} with strides {post.arg.strides}"
    return None


def with_functions(step: NativeStep, functions: tuple[PostOp, ...]) -> NativeStep | str:
    """The step with ``functions`` appended, or the reason why not; two linear functions in a row become one."""
    allowed = ACCEPTS[step.primitive].eltwise
    for function in functions:
        if allowed is not None and function.algorithm not in allowed:
            return f"oneDNN's {step.primitive} takes no {function.algorithm} behind it"
        last = step.post_ops[-1] if step.post_ops else None
        if last is not None and last.algorithm == function.algorithm == "linear":
            both = eltwise.linear(function.alpha * last.alpha, function.alpha * last.beta + function.beta)
            step = replace(step, post_ops=(*step.post_ops[:-1], both))
        else:
            step = step.then(function)
    return step


def _with_operand(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    other, result = call.args[1 - operand], call.args[operand]
    if reason := why_not_operand(step.primitive, "the other operand", other):
        return reason
    if other == result:
        return "both operands are the result"
    if shape_of(call) != shape_of(result):
        return "the operator broadcasts the result"
    view = _operand_view(step, call, other)
    if isinstance(view, str):
        return view
    algorithm = ALGORITHMS[op_name(call)]
    if algorithm.name == "add" and _is_bias(step, view):
        return step.with_arg("bias", view if step.primitive == "matmul" else _vector(step, view))
    if algorithm.name == "mul" and _is_weights_scale(step, view):
        return step.with_arg("weights_scale", _vector(step, view))
    post = PostOp("binary", algorithm.name if operand == 0 else algorithm.swapped, arg=view)
    grown = step.then(post, *(algorithm.undo if operand == 1 else ()))
    return why_not_operands(grown) or grown


def _operand_view(step: NativeStep, call: relax.Call, other: relax.Expr) -> View | str:
    shape = static_shape(call)
    strides = broadcast(static_shape(other), shape)
    view = None if strides is None else remap(step.result, shape, strides, other)
    return (
        "no strides describe the operand in the layout of the result"
        if view is None
        else unrepeated(view, step.result)
    )


def _is_bias(step: NativeStep, view: View) -> bool:
    free = ACCEPTS[step.primitive].bias and step.arg("bias") is None and not step.post_ops
    return free and _is_one_a_channel(step, view)


def _is_weights_scale(step: NativeStep, view: View) -> bool:
    """Whether an operand is one factor for each channel of a product of bytes, which oneDNN applies to the sums."""
    source = step.arg("src")
    free = step.arg("weights_scale") is None and step.arg("bias") is None and not step.post_ops
    of_bytes = source is not None and source.dtype in BYTES and step.primitive in ("convolution", "matmul")
    return free and of_bytes and view.dtype == "float32" and _is_one_a_channel(step, view)


def _is_one_a_channel(step: NativeStep, view: View) -> bool:
    channels = _channels(step)
    return all(
        have == (want if axis == channels else 1)
        for axis, (have, want) in enumerate(zip(view.dims, step.result.dims, strict=True))
    )


def _channels(step: NativeStep) -> int:
    return len(step.result.dims) - 1 if step.primitive == "matmul" else 1


def _vector(step: NativeStep, view: View) -> View:
    """One number a channel, without the other axes."""
    channels = _channels(step)
    return replace(view, dims=(view.dims[channels],), strides=(view.strides[channels],))


def _forms(view: View, step: NativeStep) -> frozenset[str]:
    """The names of the forms that an operand has.

    ``scalar`` is one number, and ``channel`` one number for each channel, side by side. ``row`` is a row that is used
    for several rows of the result (:func:`_is_rows`), and ``full`` is a tensor like the result.
    """
    result = step.result
    forms = set()
    if all(extent == 1 for extent in view.dims):
        forms.add("scalar")
    is_vector = all(have == 1 for k, have in enumerate(view.dims) if k != 1)
    if is_vector and view.dims[1:2] == result.dims[1:2] and is_dense(view):
        forms.add("channel")
    if _is_rows(view, result):
        forms.add("row")
    if same_strides(view, result) and (step.primitive not in _CHANNELS_LAST or is_channels_last(result)):
        forms.add("full")
    return frozenset(forms)


def _is_rows(view: View, result: View) -> bool:
    """Whether an operand is one row for all, one row for each batch, or one matrix for each batch of matrices.

    The first dim is the batch and the second is broadcast. Only the reference kernel takes other forms.
    """
    if (
        len(view.dims) < 2
        or view.dims[-1] != result.dims[-1]
        or view.dims == result.dims
        or not is_channels_first(view)
    ):
        return False
    first, *middle = view.dims[:-1]
    if all(extent == 1 for extent in middle):
        return first in (1, result.dims[0])
    return first == result.dims[0] and middle[0] == 1 and tuple(middle[1:]) == result.dims[2:-1]


_CHANNELS_LAST = frozenset({"convolution", "deconvolution"})
"""Primitives that take an operand as large as the result only where channels are innermost."""
