"""transposed: a transposed convolution whose windows do not overlap is a product, whose rows are then put in place.

Where the stride is the size of the window, each pixel makes a patch of its own, and nothing is summed between windows.
What follows element by element is computed before the rows are put in place, where it is part of the product's kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from .constants import constant
from .rule import Rule
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name, static_shape
from .views import permutation
from .windows import spatial_axes, window

_TRANSPOSED = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose", "relax.nn.conv3d_transpose")
_POINTWISE = (
    "relax.clip",
    "relax.nn.gelu",
    "relax.nn.gelu_tanh",
    "relax.nn.leakyrelu",
    "relax.nn.relu",
    "relax.nn.silu",
    "relax.sigmoid",
    "relax.tanh",
)


def _as_product(call: Expr, scope: Scope) -> Expr | None:
    """conv2d_transpose(x, w, strides=(kh, kw)) with windows of (kh, kw) -> a product, permuted and reshaped.

    x (N, C, H, W) as (1, 1, N, H, W, C) times w (C, O, kh, kw) as (kh, kw, 1, 1, C, O) is (kh, kw, N, H, W, O);
    that as (N, H, kh, W, kw, O) is (N, H kh, W kw, O).
    """
    shape, weights = static_shape(call.args[0]), scope.array(call.args[1])
    if shape is None or weights is None or why_not_product(call) is not None:
        return None
    kernel, spatial = str(call.attrs.kernel_layout), len(shape) - 2
    taps = weights.transpose([*(spatial_axes(kernel) or []), kernel.index("I"), kernel.index("O")])
    sizes, units = taps.shape[:spatial], [1] * spatial
    pixels = op.permute_dims(call.args[0], [0, *range(2, spatial + 2), 1])
    rows = op.reshape(pixels, [*units, shape[0], *shape[2:], shape[1]])
    product = op.matmul(rows, constant(taps.reshape([*sizes, *units, *taps.shape[spatial:]])))
    extents = [size * step for size, step in zip(shape[2:], sizes, strict=True)]
    return _placed(product, [shape[0], *extents, taps.shape[-1]])


def why_not_product(call: Call) -> str | None:
    """Why a transposed convolution is not a product, or None."""
    attrs = call.attrs
    if not is_float(call) or dtype_of(call) != dtype_of(call.args[0]):
        return f"it makes {dtype_of(call)} of {dtype_of(call.args[0])}"
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    if data not in ("NCW", "NCHW", "NCDHW") or str(attrs.out_layout or data) != data or not kernel.isalpha():
        return f"its layouts are {data}, {kernel} and {attrs.out_layout}"
    if int(attrs.groups) != 1:
        return f"it has {attrs.groups} groups"
    sizes = [int(call.args[1].ty.shape.values[axis]) for axis in spatial_axes(kernel) or []]
    if sizes != window(call, "strides"):
        return f"its windows of {sizes} overlap or leave gaps at strides of {window(call, 'strides')}"
    if any(window(call, "padding")) or any(window(call, "output_padding")):
        return "it is padded"
    return "it is dilated" if any(step != 1 for step in window(call, "dilation")) else None


def _placed(product: Expr, image: Sequence[int]) -> Expr:
    """A product (kh, kw, N, H, W, O) as the ``image`` (N, H kh, W kw, O), and that with the channels second."""
    spatial = len(image) - 2
    patches = op.permute_dims(product, _places(spatial))
    return op.permute_dims(op.reshape(patches, image), [0, spatial + 1, *range(1, spatial + 1)])


def _places(spatial: int) -> list[int]:
    """The axes (kh, kw, N, H, W, O) as (N, H, kh, W, kw, O)."""
    pairs = [axis for i in range(spatial) for axis in (spatial + 1 + i, i)]
    return [spatial, *pairs, 2 * spatial + 1]


def _before_placing(call: Expr, scope: Scope) -> Expr | None:
    """A bias or an activation of a product whose rows were put in place -> the same before they are."""
    image = scope.own_call(call.args[0], "relax.permute_dims")
    patches = None if image is None else scope.own_call(image.args[0], "relax.reshape")
    spread = None if patches is None else scope.own_call(patches.args[0], "relax.permute_dims")
    shape = None if patches is None else static_shape(patches)
    if spread is None or shape is None:
        return None
    spatial = len(shape) - 2
    if spread.ty.ndim != 2 * spatial + 2 or permutation(spread) != _places(spatial):
        return None
    if permutation(image) != [0, spatial + 1, *range(1, spatial + 1)]:
        return None
    rest = list(call.args[1:])
    if op_name(call) == "relax.add":
        bias = scope.array(rest[0])
        if (
            bias is None
            or bias.size != shape[-1]
            or bias.shape[-1 - spatial :] != (shape[-1], *[1] * spatial)
        ):
            return None
        rest = [constant(bias.reshape(-1))]
    return _placed(relax.Call(call.op, [spread.args[0], *rest], call.attrs, call.ty_args), shape)


TRANSPOSED_AS_PRODUCT = Rule("transposed_as_product", _TRANSPOSED, _as_product)
BEFORE_PLACING = Rule("before_placing", ("relax.add", *_POINTWISE), _before_placing)
