"""The dtypes and layouts for which each primitive of oneDNN 3.2 has an optimised kernel.

A reference kernel is a plain loop that takes hundreds of times as long; the library has it to check the others. Cases
that only the reference kernel takes are declined. ``dnnl_query_impl_info_str`` tells which kernel a primitive uses.
"""

from __future__ import annotations

from collections.abc import Callable

from ..native.casts import FLOATS
from ..native.program import NativeStep, View
from ..native.values import dtype_of, why_not_sized, why_not_static
from ..native.views import is_channels_first, is_channels_last, is_dense, same_strides
from .whole_numbers import BYTES, SUMS, WEIGHTS

FLOAT32 = frozenset({"float32"})
_LONG_SUM = 128
"""The most channels of a transposed convolution with a bias or post-operations. oneDNN's results are wrong for some
shapes with more channels, see :func:`_transposed`."""

TYPES: dict[str, frozenset[str]] = {
    "convolution": FLOATS | BYTES,
    "deconvolution": FLOAT32,
    "matmul": FLOATS | BYTES,
    "pooling": FLOATS,
    "batch_normalization": FLOAT32,
    "layer_normalization": FLOATS,
    "softmax": FLOATS,
    "eltwise": FLOATS,
    "binary": FLOATS,
    "concat": FLOATS,
    "reduction": FLOATS,
    "resampling": FLOAT32,
    "reorder": FLOATS,
    "lrn": FLOAT32,
    "prelu": FLOAT32,
}
"""Element types of the operands of each primitive."""

FREE_SIZES = frozenset(TYPES) - {
    "deconvolution",
    "batch_normalization",
    "concat",
    "resampling",
    "lrn",
    "prelu",
}
"""Primitives that take sizes known only when the program runs: one primitive is made for each size that occurs."""


def why_not_operand(primitive: str, what: str, value: object) -> str | None:
    """Why ``primitive`` cannot read a tensor, or None when it can."""
    dtype = dtype_of(value)
    if dtype not in TYPES[primitive]:
        return f"{what} is {dtype or 'of unknown dtype'}, {primitive} takes {' or '.join(sorted(TYPES[primitive]))}"
    return why_not_sized(what, value) if primitive in FREE_SIZES else why_not_static(what, value)


def why_not_types(step: NativeStep) -> str | None:
    """Why the types of a step's operands and result cannot be combined, or None. Each type alone is in ``TYPES``."""
    check = _TOGETHER.get(step.primitive)
    return None if check is None else check(step)


def _product_types(step: NativeStep) -> str | None:
    source, weights, result = (
        view.dtype for view in (_view(step, "src"), _view(step, "weights"), step.result)
    )
    if source in BYTES:
        right = weights == WEIGHTS and result in BYTES | {SUMS, "float32"}
        return None if right else f"src is {source}, weights are {weights}, the result {result}"
    if source != weights:
        return f"src is {source}, weights are {weights}"
    return None if result in (source, "float32") else f"src is {source}, the result {result}"


def _one_type(step: NativeStep) -> str | None:
    source = _view(step, "src0" if step.arg("src0") is not None else "src")
    if source.dtype == step.result.dtype or step.result.dtype not in FLOATS:
        return None
    return f"{step.primitive} writes what it reads, not {source.dtype} as {step.result.dtype}"


def _affine_types(step: NativeStep) -> str | None:
    views = (step.arg("scale"), step.arg("shift"))
    return None if all(v is None or v.dtype == "float32" for v in views) else "scale and shift are float32"


def why_not_layout(step: NativeStep) -> str | None:
    """Why only a reference kernel takes the strides of a step, or None."""
    check = _LAYOUTS.get(step.primitive)
    return None if check is None else check(step)


def is_mixed(step: NativeStep) -> bool:
    """Whether source and result are images in two different layouts.

    Such a step is incomplete: it must read or write through one more permutation.
    """
    if _LAYOUTS.get(step.primitive) not in (_images, _transposed) or _images(step) is None:
        return False
    return all(
        is_channels_last(view) or is_channels_first(view) for view in (_view(step, "src"), step.result)
    )


def why_not_vectors(step: NativeStep) -> str | None:
    """Why the numbers of a bias, a scale or a statistic would be misread, or None: oneDNN ignores their stride."""
    for name in _VECTORS:
        view = step.arg(name)
        if view is not None and not is_dense(view):
            return f"the numbers of {name} are not neighbours"
    return None


def _images(step: NativeStep) -> str | None:
    """Source and result must be dense, and both channels first or both channels last."""
    source, result = _view(step, "src"), step.result
    for agrees in (is_channels_last, is_channels_first):
        if agrees(source) and agrees(result):
            return None
    return "source and result are not dense in one layout, channels first or channels last"


def _transposed(step: NativeStep) -> str | None:
    """As :func:`_images`; with channels last and more than ``_LONG_SUM`` channels no bias and no post-operations.

    ``brgconv_strided`` gives wrong results for some of these shapes, as if it applied the post-operations to each of
    several partial sums; without them its results are right. With windows of 4x4 a bias, a residual and relu were
    each wrong for 256 to 128 and 512 to 64 channels. They were right for 256 to 32, 192 to 96 and 160 to 128.
    """
    source = _view(step, "src")
    behind = bool(step.post_ops) or step.arg("bias") is not None
    if behind and is_channels_last(source) and is_channels_last(step.result) and source.dims[1] > _LONG_SUM:
        return f"oneDNN 3.2 computes wrong post-operations behind a transposed convolution of over {_LONG_SUM} channels"
    return _images(step)


def _matrices(step: NativeStep) -> str | None:
    for name in ("src", "weights"):
        view = _view(step, name)
        # One row is contiguous by itself only: the stride between rows says nothing then.
        has_columns = view.dims[-2] != 1 and view.strides[-2] == 1
        if not (_innermost(view, -1) or has_columns):
            return f"neither rows nor columns of {name} are contiguous"
    return None if _innermost(step.result, -1) else "the rows of the result are not contiguous"


def _alike(step: NativeStep) -> str | None:
    source = _view(step, "src0" if step.arg("src0") is not None else "src")
    if not same_strides(source, step.result):
        return "source and result have different strides"
    return None if is_dense(source) else "source and result are not dense"


def _softmax(step: NativeStep) -> str | None:
    if not _innermost(step.result, step.attr("axis")):
        return "the axis is not the innermost one"
    return _alike(step)


def _rows(step: NativeStep) -> str | None:
    # oneDNN 3.2 ignores the distance of rows.
    contiguous = is_channels_first(_view(step, "src")) and is_channels_first(step.result)
    return None if contiguous else "source and result are not dense with the normalized axes innermost"


def _innermost(view: View, axis: int) -> bool:
    return view.dims[axis] == 1 or view.strides[axis] == 1


def _view(step: NativeStep, name: str) -> View:
    view = step.arg(name)
    assert view is not None, name
    return view


_VECTORS = ("bias", "scale", "shift", "mean", "variance", "weights_scale")
"""The names of arguments with one number for each channel."""

_TOGETHER: dict[str, Callable[[NativeStep], str | None]] = {
    "convolution": _product_types,
    "matmul": _product_types,
    "pooling": _one_type,
    "eltwise": _one_type,
    "binary": _one_type,
    "concat": _one_type,
    "layer_normalization": _affine_types,
}
"""Checks by primitive; the other primitives read and write any of their types."""

_LAYOUTS: dict[str, Callable[[NativeStep], str | None]] = {
    "convolution": _images,
    "deconvolution": _transposed,
    "pooling": _images,
    "batch_normalization": _images,
    "resampling": _images,
    "lrn": _images,
    "matmul": _matrices,
    "softmax": _softmax,
    "layer_normalization": _rows,
    "eltwise": _alike,
    "binary": _alike,
    "prelu": _alike,
    "reduction": lambda step: None if is_channels_first(_view(step, "src")) else "source is not row-major",
}
