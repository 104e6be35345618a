"""ONNX Runtime and OpenVINO as backends of regions.

Takes     regions of operators that ONNX has (:mod:`unity_collage.to_onnx`): the largest regions, blocks of a network,
          and products and convolutions with the operators that follow. Sizes are static.
Declines  operators without a counterpart in ONNX, and maxima over axes, which lose NaN in both runtimes. For ONNX
          Runtime also maxima over windows, quotients of integers that may be divided by 0, which it makes an error,
          and bfloat16 and integers of 16 bits, for which it has few kernels. For
          OpenVINO also float64, which it computes in float32; arithmetic of 64-bit integers, which it computes in 32
          bits; most operators of int32, which it computes in float32; integers of 8 and 16 bits, whose sums it
          saturates; casts to bfloat16, which it truncates; and tests for NaN.
Needs     ``onnxruntime`` or ``openvino``. They are used only if they are named: ``backends=["onednn", "openvino"]``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import relax
from tvm.target import Target

from ...graph.calls import op_name
from ...graph.shapes import dtype_of, shape_of
from ...legalization.division import is_safe_division
from ...rules import Rule, SupportedRegions
from ...sessions import RUNTIMES
from ..base import Backend
from .lowering import region_codegen

_PRODUCTS = frozenset(
    {
        "relax.matmul",
        "relax.nn.attention",
        "relax.nn.attention_bias",
        *(f"relax.nn.conv{rank}d{end}" for rank in (1, 2, 3) for end in ("", "_transpose")),
    }
)
_ATTENTION = frozenset({"relax.nn.attention", "relax.nn.attention_bias"})
_BY_INDEX = frozenset({"relax.take", "relax.gather_elements", "relax.gather_nd"})
"""Operators that pick elements of their first operand by the others."""
_READ_NOTHING = frozenset({"relax.ones_like", "relax.zeros_like"})
"""Operators with models without inputs, which a session cannot call."""
_OVER_AXES = frozenset({"relax.max", "relax.min", "relax.argmax", "relax.argmin"})
_OVER_WINDOWS = frozenset({f"relax.nn.max_pool{rank}d" for rank in (1, 2, 3)})
_ASK_FOR_NAN = frozenset({"relax.isnan", "relax.isinf", "relax.isfinite"})
_FEW_KERNELS = frozenset({"bfloat16", "int16", "uint16"})
_WIDE = frozenset({"int64", "uint64", "uint32"})
_NARROW = frozenset({"int8", "uint8", "int16", "uint16"})
_EXACT_IN_32_BITS = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "add", "astype", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to", "concat",
        "dequantize", "expand_dims", "flatten", "gather_elements", "gather_nd", "maximum", "minimum", "multiply",
        "negative", "nn.pad", "permute_dims", "reshape", "split", "squeeze", "stack", "strided_slice", "subtract",
        "take", "tile", "where",
    )
)  # fmt: skip
"""Operators that OpenVINO computes for int32 without going through float32, which has 24 bits."""
_WINOGRAD_CHANNELS = 16
"""From how many channels on a convolution of 3x3 is worth Winograd's algorithm."""


def is_better_elsewhere(call: relax.Call) -> bool:
    """Whether other backends are usually much faster at ``call``.

    Our attention does not write its scores. Our convolutions of 3x3 use Winograd's algorithm, and grouped ones have
    kernels of their own.
    """
    name = op_name(call)
    if name in _ATTENTION:
        return True
    if name != "relax.nn.conv2d":
        return False
    attrs, weights = call.attrs, shape_of(call.args[1])
    if weights is None:
        return False
    layout, groups = str(attrs.kernel_layout), int(attrs.groups)
    if groups > 1:
        return weights[layout.index("I")] > 1
    window = [weights[layout.index(axis)] for axis in "HW"]
    steps = [int(step) for step in (*attrs.strides, *attrs.dilation)]
    enough = min(weights[layout.index(axis)] for axis in "IO") >= _WINOGRAD_CHANNELS
    return window == [3, 3] and steps == [1, 1, 1, 1] and enough


def why_not_onnxruntime(call: relax.Call) -> str | None:
    """Why ONNX Runtime does not take a call, or None."""
    if op_name(call) in _OVER_AXES | _OVER_WINDOWS:
        return "ONNX Runtime's maxima over axes and windows lose NaN"
    if op_name(call) == "relax.divide" and not is_safe_division(call):
        return "ONNX Runtime fails where an integer is divided by 0"
    for dtype, shape in _tensors(call):
        if dtype in _FEW_KERNELS:
            return f"ONNX Runtime has few kernels for {dtype}"
        if 0 in shape:
            return "a tensor has no elements"
    return _why_not_exported(call)


def why_not_openvino(call: relax.Call) -> str | None:
    """Why OpenVINO does not take a call, or None.

    Activations, softmax and pooling are taken, though they make numbers of NaN (docs/whole_models.md): without them no
    network would have a region.
    """
    name = op_name(call)
    if name in _ASK_FOR_NAN:
        return "OpenVINO makes numbers of NaN, and the program asks for it"
    if name in _OVER_AXES:
        return "OpenVINO's maxima over axes lose NaN and infinity"
    if name == "relax.astype" and dtype_of(call) == "bfloat16":
        return "OpenVINO does not round to the nearest bfloat16"
    # An index fits into 32 bits, but the tensor that it indexes may not.
    by_index = name in _BY_INDEX
    wide = _types(call.ty, *(call.args[:1] if by_index else call.args))
    for dtype in (str(ty.dtype) for ty in wide):
        if dtype in _WIDE:
            return f"OpenVINO computes {dtype} in 32 bits"
    if name not in _EXACT_IN_32_BITS and any(str(ty.dtype) == "int32" for ty in _types(*call.args)):
        return f"OpenVINO computes {name.removeprefix('relax.')} of int32 in float32"
    for dtype, shape in _tensors(call):
        if dtype == "float64":
            return "OpenVINO computes float64 in float32"
        if dtype in _NARROW:
            return f"OpenVINO rounds sums of {dtype} to its range, and does not wrap around"
        if 0 in shape:
            return "a tensor has no elements"
    return _why_not_exported(call)


def _why_not_exported(call: relax.Call) -> str | None:
    from ...to_onnx import why_not_exported

    if op_name(call) in _READ_NOTHING:
        return "it does not read its operand"
    return why_not_exported(call)


def _tensors(call: relax.Call) -> list[tuple[str, tuple[int, ...]]]:
    """The element types and shapes of the tensors that a call reads and writes."""
    return [(dtype_of(ty), shape_of(ty) or ()) for ty in _types(call.ty, *call.args)]


def _types(*of: relax.Expr | relax.Type) -> list[relax.TensorType]:
    """The types of tensors, those inside of tuples too."""
    types = [each.ty if isinstance(each, relax.Expr) else each for each in of]
    flat = [field for ty in types for field in (ty.fields if isinstance(ty, relax.TupleType) else [ty])]
    return [ty for ty in flat if isinstance(ty, relax.TensorType)]


def _rule(why_not: Callable[[relax.Call], str | None], _target: Target) -> Rule:
    return SupportedRegions(why_not, _PRODUCTS, is_better_elsewhere)


def _backend(name: str, why_not: Callable[[relax.Call], str | None]) -> Backend:
    runtime = RUNTIMES[name]
    return Backend(
        name=name,
        rule=partial(_rule, why_not),
        why_unavailable=lambda: runtime.why_unavailable(),
        fingerprint=lambda: runtime.version(),
        codegen=region_codegen(runtime),
        by_default=False,
        has_own_threads=True,
        takes_options=True,
        version=2,
    )


ONNXRUNTIME = _backend("onnxruntime", why_not_onnxruntime)
OPENVINO = _backend("openvino", why_not_openvino)
