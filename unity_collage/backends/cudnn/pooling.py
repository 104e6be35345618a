"""Pooling by windows, and adaptive pooling with windows of one size."""

from __future__ import annotations

from tvm import relax

from ..native.program import NativeStep, View
from ..native.values import attrs_of, dtype_of, ints, op_name, shape_of, static_shape
from ..onednn.pooling import reaching
from ..onednn.windows import Window, by_letters, window_of
from .images import as_plane, window_of_plane
from .types import why_not_operand


def pooling(call: relax.Call) -> NativeStep | str:
    """max_pool, avg_pool -> pooling; with ``ceil_mode`` the padding behind is extended to the end of the last
    window."""
    views = _views(call)
    if isinstance(views, str):
        return views
    source, result = views
    attrs, spatial = attrs_of(call), len(source.dims) - 2
    kernel = ints(attrs.pool_size)
    kernel = kernel * spatial if len(kernel) == 1 else kernel
    window = window_of(spatial, attrs.strides, attrs.padding, attrs.dilation)
    if any(window.dilates):
        return "the windows of cuDNN's pooling have no gaps"
    algorithm = "max"
    if "avg_pool" in op_name(call):
        algorithm = "avg_include_padding" if attrs.count_include_pad else "avg_exclude_padding"
    behind = reaching(window, kernel, source.dims[2:], result.dims[2:])
    if algorithm == "avg_include_padding" and behind != window:
        return "windows reach beyond the padding, and cuDNN counts the elements there, which Relax does not"
    return _pool(source, result, algorithm, kernel, behind)


def adaptive(call: relax.Call) -> NativeStep | str:
    """adaptive_avg_pool -> pooling, if the size of the result divides that of the source."""
    views = _views(call)
    if isinstance(views, str):
        return views
    source, result = views
    if any(have % want for have, want in zip(source.dims[2:], result.dims[2:], strict=True)):
        return "the windows of the adaptive pooling differ in size"
    kernel = tuple(have // want for have, want in zip(source.dims[2:], result.dims[2:], strict=True))
    none = (0,) * len(kernel)
    return _pool(source, result, "avg_include_padding", kernel, Window(kernel, none, none, none))


def _pool(source: View, result: View, algorithm: str, kernel: tuple[int, ...], window: Window) -> NativeStep:
    plane = window_of_plane(window)
    attrs = (
        ("pooling", algorithm),
        ("kernel", kernel if len(kernel) > 1 else (1, *kernel)),
        ("strides", plane.strides),
        ("padding_l", plane.padding_l),
        ("padding_r", plane.padding_r),
    )
    return NativeStep("pooling", (("src", as_plane(source)), ("dst", as_plane(result))), attrs)


def _views(call: relax.Call) -> tuple[View, View] | str:
    data = call.args[0]
    if reason := why_not_operand("data", data):
        return reason
    if shape_of(call) is None or dtype_of(call) != dtype_of(data):
        return "the result has another type or no static shape"
    rank, attrs = len(static_shape(data)), attrs_of(call)
    source = by_letters(data, attrs.layout, "NC", rank)
    result = by_letters(call, attrs.out_layout or attrs.layout, "NC", rank)
    if isinstance(source, str):
        return source
    return result if isinstance(result, str) else (source, result)


ENTRIES = {
    **{f"relax.nn.{kind}_pool{n}d": pooling for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"relax.nn.adaptive_avg_pool{n}d": adaptive for n in (1, 2, 3)},
}
