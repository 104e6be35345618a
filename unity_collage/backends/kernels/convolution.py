"""What our convolutions share: the layout of their tensors, and the operators that may follow."""

from __future__ import annotations

from dataclasses import replace

from tvm import ir, relax

from ..native.casts import FLOATS, WIDE, is_cast, write_narrowed
from ..native.joining import MOST_FIELDS, SIBLING, fields_read
from ..native.program import NativeStep, PostOp, View
from ..native.values import attrs_of, dtype_of, op_name, shape_of, static_shape, why_not_sized
from ..native.views import broadcast, is_channels_last, pixel_stride, remap, same_strides
from ..onednn.windows import by_letters, window_of
from .functions import function_of

MOST = 8
"""The most post-operations that the kernels take."""
WIDEST = 16
"""Elements in the widest vector."""

_BINARY = {"relax.add": "add", "relax.multiply": "mul"}


def convolution(primitive: str, call: relax.Call) -> NativeStep | str:
    """A convolution of images or volumes, without dilation, or the reason why not. The caller fills in attributes."""
    rank = {"relax.nn.conv2d": 4, "relax.nn.conv3d": 5}.get(op_name(call))
    if rank is None:
        return f"{op_name(call)} is not a convolution of images or volumes"
    if reason := _why_not(call):
        return reason
    attrs, (data, kernel) = attrs_of(call), call.args
    views = (
        by_letters(data, attrs.data_layout, "NC", rank),
        by_letters(kernel, attrs.kernel_layout, "OI", rank),
        by_letters(call, attrs.out_layout or attrs.data_layout, "NC", rank),
    )
    source, weights, result = views
    if isinstance(source, str) or isinstance(weights, str) or isinstance(result, str):
        return next(view for view in views if isinstance(view, str))
    padding = window_of(rank - 2, attrs.strides, attrs.padding, attrs.dilation).padding_l
    args = (("src", source), ("weights", weights), ("dst", result))
    return checked(NativeStep(primitive, args, (("padding_l", padding),)))


def why_not_filters(step: NativeStep, *edges: int) -> str | None:
    """Why the filters are not squares with one of the ``edges``, or None."""
    weights = step.arg("weights")
    assert weights is not None
    if weights.dims[-2:] in [(edge, edge) for edge in edges]:
        return None
    known = " or ".join(f"{edge}x{edge}" for edge in edges)
    return f"the filters are {weights.dims[-2]}x{weights.dims[-1]}, the kernel's are {known}"


def equal_strides(call: relax.Call) -> int | str:
    """The stride along both axes of an image, 1 or 2, or the reason why the kernels do not have it."""
    strides = tuple(int(stride) for stride in attrs_of(call).strides)
    down, right = (strides * 2)[-2:]
    if down in (1, 2) and down == right:
        return down
    return f"the strides are {down} and {right}, the kernel has 1 or 2 for both"


def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with ``call``, which reads its result as ``args[operand]``, as bias or post-operation, or the reason
    why not.
    """
    if is_cast(call):
        return write_narrowed(step, call)
    if shape_of(call) != shape_of(call.args[operand]) or dtype_of(call) != WIDE:
        return "the operator changes shape or dtype of the result"
    function = function_of(call, operand)
    if not isinstance(function, str):
        grown = step.then(function)
    elif op_name(call) in _BINARY:
        grown = _with_operand(step, call, operand)
    else:
        return function
    if isinstance(grown, str):
        return grown
    if len(grown.post_ops) > MOST:
        return f"there are more than {MOST} operators behind it"
    return grown.with_result(replace(grown.result, buffer=call))


def reading_fields(step: NativeStep, value: relax.Expr, call: relax.Call) -> NativeStep | str:
    """The step that reads the fields of the concat ``call`` in place, or the reason why not."""
    if step.primitive != "winograd":
        return f"{step.primitive} reads one tensor"
    if "groups" in dict(step.attrs):
        return "filters of several groups read one tensor"
    read = fields_read(step, value, call, WIDEST)
    weights = step.arg("weights")
    assert weights is not None
    taps = 1 if len(weights.dims) == 4 else weights.dims[2]
    if isinstance(read, str) or taps == 1:
        return read
    fields = [view for name, view in read.args if name.startswith("src")]
    if len(fields) * taps > MOST_FIELDS:
        return f"filters {taps} deep of {len(fields)} fields are more than {MOST_FIELDS} fields"
    return f"the channels of a field are not a multiple of {WIDEST}" if fields[-1].dims[1] % WIDEST else read


def checked(step: NativeStep | str) -> NativeStep | str:
    """The step if the kernel can address its tensors, or the reason why not."""
    if isinstance(step, str):
        return step
    sources = [view for name, view in step.args if name.startswith("src")]
    if not sources or not all(is_channels_last(source) for source in sources):
        return "the source is not dense with channels innermost"
    if pixel_stride(step.result) is None:
        return "the result is not an image with channels innermost"
    if any(name.startswith(SIBLING) and view.strides[1] != 1 for name, view in step.args):
        return "the rows of a sibling copy are not contiguous"
    if any(post.arg is not None and not same_strides(post.arg, step.result) for post in step.post_ops):
        return "an operand has other strides than the result"
    return step


def _why_not(call: relax.Call) -> str | None:
    for what, value in (("data", call.args[0]), ("weights", call.args[1])):
        if dtype_of(value) not in FLOATS:
            return f"{what} is {dtype_of(value) or 'of unknown dtype'}, the kernel takes float32 and bfloat16"
        if reason := why_not_sized(what, value):
            return reason
    if reason := why_not_sized("result", call):
        return reason
    if dtype_of(call) != WIDE:
        return f"the sums are {dtype_of(call) or 'of unknown dtype'}, the kernel's are float32"
    if not isinstance(call.args[1], ir.GenericConst):
        return "the weights are not constant, but they are packed once, when the program is loaded"
    return "the filters are dilated" if any(extent != 1 for extent in attrs_of(call).dilation) else None


def _with_operand(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with the other operand of ``call``, or the reason why not.

    One number for each channel that is added first is the bias; a tensor like the result is a post-operation.
    """
    other, algorithm = call.args[1 - operand], _BINARY[op_name(call)]
    if dtype_of(other) != WIDE or shape_of(other) is None or other == call.args[operand]:
        return "the other operand is not another tensor of float32 with a static shape"
    strides = broadcast(static_shape(other), static_shape(call))
    view = None if strides is None else remap(step.result, static_shape(call), strides, other)
    if view is None:
        return "no strides describe the operand in the layout of the result"
    if same_strides(view, step.result):
        return step.then(PostOp("binary", algorithm, arg=view))
    if algorithm == "add" and _is_per_channel(view) and step.arg("bias") is None and not step.post_ops:
        return step.with_arg("bias", replace(view, dims=view.dims[1:2], strides=view.strides[1:2]))
    return "the operand is neither like the result nor a bias right behind the convolution"


def _is_per_channel(view: View) -> bool:
    strides = [0 if extent == 1 else step for extent, step in zip(view.dims, view.strides, strict=True)]
    return strides[1] == (view.dims[1] != 1) and not any((strides[0], *strides[2:]))
