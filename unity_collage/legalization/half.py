"""Sums in float16: they are added up in float32 and rounded once. TVM's own legalizations add up in float16.

Products, softmax, means, deviations and scans lose digits, or exceed the range of float16, if they are added up in
float16. Exponentials of activations are computed in float32 too. Layer and RMS norms do so in TVM already, group and
instance norms in ``norms``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, relax, te, tirx, topi
from tvm.relax import op

from .stock import Legalization, legalized_by_tvm

_topi: Any = topi
"""Its stubs have few of its functions."""

_HALF, _WIDE = "float16", "float32"

Compute = Callable[[te.Tensor, Any], te.Tensor]
"""The result for a float32 operand and the attributes of the call."""


def _product(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``f16 = product(f16, f16)`` becomes a product with a float32 result, and a cast that is fused with it."""
    if not _is_half(call) or not all(map(_is_half, call.args)):
        return legalized_by_tvm(builder, call)
    wide = builder.normalize(relax.Call(call.op, list(call.args), _with_wide(call.attrs, "out_dtype")))
    assert isinstance(wide, relax.Call)
    product = builder.emit(legalized_by_tvm(builder, wide))
    return builder.call_te(topi.cast, product, _HALF, primfunc_name_hint="cast")


def _scan(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``f16 = scan(f16)`` becomes a scan with a float32 result, and a cast."""
    if not _is_half(call) or not _is_half(call.args[0]):
        return call
    wide = relax.Call(call.op, list(call.args), _with_wide(call.attrs, "dtype"))
    return op.astype(builder.emit(wide), _HALF)


def _einsum(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    operands = call.args[0]
    if not _is_half(call) or not isinstance(operands, relax.Tuple):
        return legalized_by_tvm(builder, call)

    def rounded(*data: te.Tensor) -> te.Tensor:
        wide = [topi.cast(each, _WIDE) for each in data]
        return topi.cast(_topi.einsum(call.attrs.subscripts, *wide), _HALF)

    return builder.call_te(rounded, *operands.fields, primfunc_name_hint="half_einsum")


def _with_wide(attrs: Any, result: str) -> ir.Attrs:
    """``attrs`` with float32 as the type of the result, which the field ``result`` names."""
    info = type(attrs).__tvm_ffi_type_info__
    fields = {field.name: getattr(attrs, field.name) for field in info.fields}
    return ir.make_node(info.type_key, **(fields | {result: _WIDE}))


def _inside(compute: Compute) -> Legalization:
    """A legalization of one operand: widened, computed in float32, rounded, all in one kernel."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if not _is_half(call) or not _is_half(call.args[0]) or not _keeps_layout(call):
            return legalized_by_tvm(builder, call)

        def rounded(data: te.Tensor) -> te.Tensor:
            return topi.cast(compute(topi.cast(data, _WIDE), call.attrs), _HALF)

        assert isinstance(call.op, ir.Op)
        name = "half_" + call.op.name.rpartition(".")[2]  # exp and the like are names in the C library
        return builder.call_te(rounded, call.args[0], primfunc_name_hint=name)

    return legalize


def _is_half(value: relax.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType) and str(value.ty.dtype) == _HALF


def _keeps_layout(call: relax.Call) -> bool:
    """Whether a pool has one layout; TVM has no kernel for two."""
    return getattr(call.attrs, "out_layout", None) == getattr(call.attrs, "layout", None)


def _count(data: te.Tensor, attrs: Any) -> Any:
    axes = range(len(data.shape)) if attrs.axis is None else [int(axis) for axis in attrs.axis]
    count = tirx.const(1.0, _WIDE)
    for axis in axes:
        count = count * tirx.Cast(_WIDE, data.shape[axis])
    return count


def _sum(data: te.Tensor, attrs: Any) -> te.Tensor:
    return _topi.sum(data, attrs.axis, attrs.keepdims)


def _mean(data: te.Tensor, attrs: Any) -> te.Tensor:
    return _topi.divide(_sum(data, attrs), _count(data, attrs))


def _variance(data: te.Tensor, attrs: Any) -> te.Tensor:
    mean = _topi.divide(_topi.sum(data, attrs.axis, True), _count(data, attrs))
    deviation = _topi.subtract(data, mean)
    return _mean(_topi.multiply(deviation, deviation), attrs)


def _average(pool: Callable[..., te.Tensor]) -> Compute:
    def compute(data: te.Tensor, attrs: Any) -> te.Tensor:
        return pool(
            data,
            kernel=attrs.pool_size,
            stride=attrs.strides,
            dilation=attrs.dilation,
            padding=attrs.padding,
            pool_type="avg",
            ceil_mode=attrs.ceil_mode,
            layout=attrs.layout,
            count_include_pad=attrs.count_include_pad,
        )

    return compute


def _adaptive(pool: Callable[..., te.Tensor]) -> Compute:
    def compute(data: te.Tensor, attrs: Any) -> te.Tensor:
        size = attrs.output_size
        if size is None:  # the size of the operand
            size = [n for n, axis in zip(data.shape, attrs.layout, strict=True) if axis not in "NC"]
        return pool(data, size, "avg", attrs.layout)

    return compute


def _gelu(data: Any, _: Any) -> te.Tensor:
    half, one = tirx.const(0.5, _WIDE), tirx.const(1.0, _WIDE)
    return data * half * (one + _topi.erf(data * tirx.const(0.5**0.5, _WIDE)))


def _gelu_tanh(data: Any, _: Any) -> te.Tensor:
    half, one, cubic = (tirx.const(number, _WIDE) for number in (0.5, 1.0, 0.044715))
    factor = tirx.const(0.7978845608028654, _WIDE)  # sqrt(2 / pi)
    return data * half * (one + _topi.tanh(factor * data * (one + cubic * data * data)))


_INSIDE: dict[str, Compute] = {
    "erf": lambda data, _: _topi.erf(data),
    "exp": lambda data, _: _topi.exp(data),
    "mean": _mean,
    "nn.adaptive_avg_pool1d": _adaptive(_topi.nn.adaptive_pool1d),
    "nn.adaptive_avg_pool2d": _adaptive(_topi.nn.adaptive_pool),
    "nn.adaptive_avg_pool3d": _adaptive(_topi.nn.adaptive_pool3d),
    "nn.avg_pool1d": _average(_topi.nn.pool1d),
    "nn.avg_pool2d": _average(_topi.nn.pool2d),
    "nn.avg_pool3d": _average(_topi.nn.pool3d),
    "nn.gelu": _gelu,
    "nn.gelu_tanh": _gelu_tanh,
    "nn.log_softmax": lambda data, attrs: _topi.nn.log_softmax(data, attrs.axis),
    "nn.silu": lambda data, _: _topi.multiply(data, _topi.sigmoid(data)),
    "nn.softmax": lambda data, attrs: _topi.nn.softmax(data, attrs.axis),
    "prod": lambda data, attrs: _topi.prod(data, attrs.axis, attrs.keepdims),
    "sigmoid": lambda data, _: _topi.sigmoid(data),
    "std": lambda data, attrs: _topi.sqrt(_variance(data, attrs)),
    "sum": _sum,
    "tanh": lambda data, _: _topi.tanh(data),
    "variance": _variance,
}
_PRODUCTS = (
    "matmul",
    "nn.conv1d",
    "nn.conv2d",
    "nn.conv3d",
    "nn.conv1d_transpose",
    "nn.conv2d_transpose",
    "nn.conv3d_transpose",
)

LEGALIZATIONS: dict[str, Legalization] = {
    **{f"relax.{name}": _product for name in _PRODUCTS},
    **{f"relax.{name}": _inside(compute) for name, compute in _INSIDE.items()},
    "relax.einsum": _einsum,
}

SCANS: dict[str, Legalization] = {"relax.cumsum": _scan, "relax.cumprod": _scan}
"""Legalizations of cumulative sums and products for CPUs, before TVM chooses their kernels."""
