"""Local response normalization across channels, which importers write as a chain of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard

from ..native.program import NativeStep, View
from ..native.values import attrs_of, ints, op_name, scalar_of, static_shape, view_of
from ..native.views import row_major
from .limits import why_not_operand

_MOVES = frozenset({"relax.reshape", "relax.expand_dims", "relax.squeeze"})


@dataclass(frozen=True, slots=True)
class _Lrn:
    """The numbers of x / (k + alpha * mean of the squares of size neighbours) ** beta."""

    data: relax.Expr
    size: int
    alpha: float
    k: float
    beta: float
    channels_axis: int


def lrn_pattern() -> DFPattern:
    """square, reshape, avg_pool, reshape, scale, shift, power, divide. The wildcard is the data, which stays
    outside."""
    data = wildcard()
    moved = _moved(is_op("relax.multiply")(data, data)) | _moved(is_op("relax.square")(data))
    pooled = is_op("relax.nn.avg_pool3d")(moved) | is_op("relax.nn.avg_pool1d")(moved)
    scaled = is_op("relax.multiply")(_moved(pooled), is_const())
    shifted = is_op("relax.add")(scaled, is_const())
    return is_op("relax.divide")(data, is_op("relax.power")(shifted, is_const()))


def why_not_lrn(calls: Sequence[relax.Call]) -> str | None:
    """Why oneDNN's lrn cannot compute a chain that :func:`lrn_pattern` matches, or None when it can."""
    made = lrn(calls)
    return made if isinstance(made, str) else None


def lrn(calls: Sequence[relax.Call]) -> NativeStep | str:
    """The calls of one normalization, in order -> lrn, or the reason why they are not one."""
    found = _read(calls)
    if isinstance(found, str):
        return found
    if reason := why_not_operand("lrn", "data", found.data):
        return reason
    source, result = (
        _image(value, static_shape(found.data), found.channels_axis) for value in (found.data, calls[-1])
    )
    attrs = (
        ("algorithm", "across_channels"),
        ("local_size", found.size),
        ("alpha", found.alpha),
        ("beta", found.beta),
        ("k", found.k),
    )
    return NativeStep("lrn", (("src", source), ("dst", result)), attrs)


def _moved(inner: DFPattern) -> DFPattern:
    return (
        is_op("relax.expand_dims")(inner)
        | is_op("relax.squeeze")(inner)
        | is_op("relax.reshape")(inner, wildcard())
    )


def _read(calls: Sequence[relax.Call]) -> _Lrn | str:
    chain = [call for call in calls if op_name(call) not in _MOVES]
    names = [op_name(call) for call in chain]
    tail = ["relax.multiply", "relax.add", "relax.power", "relax.divide"]
    if len(chain) != 6 or names[0] not in ("relax.multiply", "relax.square") or names[2:] != tail:
        return "not the operators of a local response normalization"
    square, pool, *scalars, divide = chain
    data = square.args[0]
    if any(arg != data for arg in square.args) or divide.args[0] != data:
        return "what is divided is not what is squared"
    alpha, k, beta = (scalar_of(call.args[1]) for call in scalars)
    if alpha is None or k is None or beta is None:
        return "alpha, k or beta is not a scalar constant"
    window = _window(data, pool)
    return window if isinstance(window, str) else _Lrn(data, window[1], alpha, k, beta, window[0])


def _window(data: relax.Expr, pool: relax.Call) -> tuple[int, int] | str:
    """The axis of the channels in ``data`` and the number of channels that are averaged, or the reason why not."""
    shape, seen, attrs = static_shape(data), static_shape(pool.args[0]), attrs_of(pool)
    sizes = ints(attrs.pool_size)
    size, half = sizes[0], sizes[0] // 2
    ends = [half, *[0] * (len(sizes) - 1)]
    if any(s != 1 for s in sizes[1:]) or size % 2 == 0 or list(ints(attrs.padding)) != ends * 2:
        return "the average is not of an odd number of channels around each"
    if not attrs.count_include_pad or any(s != 1 for s in (*ints(attrs.strides), *ints(attrs.dilation))):
        return "the average skips padding or channels"
    if op_name(pool) == "relax.nn.avg_pool3d" and attrs.layout == "NCDHW":
        ok = len(shape) == 4 and seen == (shape[0], 1, *shape[1:])
        return (1, size) if ok else "the pooled depth is not the channels"
    if op_name(pool) == "relax.nn.avg_pool1d" and attrs.layout == "NCW":
        return (len(shape) - 1, size) if seen[-1] == shape[-1] else "the pooled width is not the channels"
    return f"{op_name(pool)} in layout {attrs.layout}"


def _image(value: relax.Expr, shape: tuple[int, ...], channels_axis: int) -> View:
    axes = (0, channels_axis, *(axis for axis in range(1, len(shape)) if axis != channels_axis))
    strides = row_major(shape)
    return view_of(value, [shape[axis] for axis in axes], [strides[axis] for axis in axes])
