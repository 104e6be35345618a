"""Each operator's numpy reference against TVM's own definition of it: the PrimFunc that LegalizeOps writes.

Nothing is compiled: the PrimFunc is evaluated by numpy as well, loop nest by loop nest.
"""

import numpy as np
import pytest
import tvm
from tvm import relax

from unity_collage import reference
from unity_collage.reference import convolution

R = relax.op
RNG = np.random.default_rng(7)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def positive(*shape: int) -> np.ndarray:
    return np.abs(real(*shape)) + np.float32(0.5)


def unit(*shape: int) -> np.ndarray:
    return RNG.uniform(-0.9, 0.9, shape).astype("float32")


def whole(*shape: int, low: int = -9, high: int = 9, dtype: str = "int32") -> np.ndarray:
    return RNG.integers(low, high, shape).astype(dtype)


def truth(*shape: int) -> np.ndarray:
    return RNG.integers(0, 2, shape).astype(bool)


def module(make, arrays) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{number}", relax.TensorType(array.shape, str(array.dtype)))
        for number, array in enumerate(arrays)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(make(*params))
        builder.emit_func_output(output)
    return builder.get()


def types(ty) -> list:
    return [part for field in ty.fields for part in types(field)] if isinstance(ty, relax.TupleType) else [ty]


def check(make, *arrays: np.ndarray, tolerance: float = 2e-6) -> None:
    """The reference has the type's shapes and dtypes, and the numbers of the legalized operator."""
    mod = module(make, arrays)
    legal = relax.transform.LegalizeOps()(mod)
    assert "call_tir" in legal["main"].script()
    got = reference.run(mod["main"], arrays)
    want = reference.run(legal["main"], arrays, legal)
    for ty, left, right in zip(types(mod["main"].ret_ty), got, want, strict=True):
        assert left.shape == tuple(int(size) for size in ty.shape.values)
        assert str(left.dtype) == str(ty.dtype)
        scale = max(np.abs(np.nan_to_num(right.astype("float64"), posinf=0, neginf=0)).max(initial=0), 1)
        np.testing.assert_allclose(
            left.astype("float64"), right.astype("float64"), tolerance, tolerance * scale
        )


@pytest.mark.parametrize(
    ("name", "x"),
    [
        *[(name, unit(3, 5)) for name in ("acos", "asin", "atanh")],
        *[
            (name, real(3, 5))
            for name in ("abs", "asinh", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor")
        ],
        *[
            (name, real(3, 5))
            for name in ("negative", "round", "sigmoid", "sign", "sin", "sinh", "square", "tan")
        ],
        *[(name, real(3, 5)) for name in ("tanh", "trunc", "isfinite", "isinf", "isnan")],
        *[(name, positive(3, 5)) for name in ("log", "sqrt", "rsqrt")],
        ("acosh", positive(3, 5) + 1),
        *[(name, whole(7)) for name in ("abs", "negative", "sign", "bitwise_not", "square")],
        ("logical_not", truth(7)),
    ],
)
def test_unary(name, x):
    check(getattr(R, name), x)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "selu", "silu", "leakyrelu", "softplus"])
def test_activation(name):
    check(getattr(R.nn, name), 3 * real(4, 6))


@pytest.mark.parametrize("axis", [1, -1])
def test_prelu_slopes_run_along_the_axis(axis):
    check(lambda x, a: R.nn.prelu(x, a, axis), real(2, 3, 3), real(3))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, axis):
    check(lambda x: getattr(R.nn, name)(x, axis), 10 * real(2, 3, 4))


BINARY = """add subtract multiply divide floor_divide mod floor_mod maximum minimum equal not_equal less
less_equal greater greater_equal"""


@pytest.mark.parametrize("name", BINARY.split())
@pytest.mark.parametrize("kind", ["float", "int"])
def test_binary_broadcasts(name, kind):
    left, right = (real(2, 1, 4), real(3, 1)) if kind == "float" else (whole(2, 1, 4), whole(3, 1, low=1))
    check(getattr(R, name), left, right if kind == "float" else -right)


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("power", positive(3, 4), real(4)),
        ("atan2", real(3, 4), real(4)),
        ("log_add_exp", real(3, 4), real(4)),
        *[(name, truth(3, 4), truth(4)) for name in ("logical_and", "logical_or", "logical_xor")],
        *[(name, whole(3, 4), whole(4)) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")],
        *[(name, whole(3, 4), whole(4, low=0, high=5)) for name in ("left_shift", "right_shift")],
    ],
)
def test_binary_of_few_dtypes(name, left, right):
    check(getattr(R, name), left, right)


def test_ternary():
    check(R.where, truth(3, 1), real(3, 4), real(4))
    check(lambda x: R.clip(x, -1, 0.5), real(3, 4))
    check(lambda x: R.clip(x, -3, 4), whole(3, 4))


@pytest.mark.parametrize("to", ["int32", "float16", "float64", "bool", "uint8"])
def test_astype(to):
    check(lambda x: R.astype(x, to), 5 * positive(3, 4))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "variance", "std"])
@pytest.mark.parametrize(("axis", "keepdims"), [(None, False), (1, True), ([-1, 0], False), ([-3], True)])
def test_reduction(name, axis, keepdims):
    check(lambda x: getattr(R, name)(x, axis, keepdims), real(2, 3, 4))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
def test_reduction_of_integers(name):
    check(lambda x: getattr(R, name)(x, 0), whole(5, 3, low=-4, high=5))


def test_collapsing_sums():
    check(lambda x: R.collapse_sum_to(x, (3, 1)), real(2, 3, 4))
    check(R.collapse_sum_like, real(2, 3, 4), real(3, 1))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (5, 4, 6)),
    ],
)
def test_matmul(left, right):
    check(R.matmul, real(*left), real(*right))


def test_products_of_integers_are_exact():
    check(
        lambda a, b: R.matmul(a, b, out_dtype="int32"),
        whole(3, 70, low=-128, high=127, dtype="int8"),
        whole(70, 5, low=-128, high=127, dtype="int8"),
    )
    check(lambda a, b: R.matmul(a, b), whole(3, 4), whole(4, 5))
    check(R.outer, real(3), real(4))
    check(lambda a, b: R.einsum((a, b), "bij,bkj->bik"), real(2, 3, 4), real(2, 5, 4))


@pytest.mark.parametrize(("mask", "sizes"), [(None, (5, 7)), ("TopLeft", (5, 5)), ("BottomRight", (5, 5))])
def test_attention(mask, sizes):
    queries, keys = sizes
    # TVM fills what it masks with 0 before it takes the maximum: positive scores keep that equal.
    check(
        lambda q, k, v: R.nn.attention(q, k, v, causal_mask=mask),
        positive(2, queries, 3, 4),
        positive(2, keys, 3, 4),
        real(2, keys, 3, 6),
    )


def test_attention_with_bias_and_scale():
    check(
        lambda q, k, v, b: R.nn.attention(q, k, v, b, 0.3),
        real(2, 5, 3, 4),
        real(2, 7, 3, 4),
        real(2, 7, 3, 4),
        real(2, 3, 5, 7),
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda x: R.reshape(x, (4, -1)),
        lambda x: R.reshape(x, (0, 12)),
        R.flatten,
        lambda x: R.expand_dims(x, [0, -1]),
        lambda x: R.squeeze(R.expand_dims(x, [1, 2])),
        lambda x: R.squeeze(R.expand_dims(x, 1), -3),
        R.permute_dims,
        lambda x: R.permute_dims(x, [1, -1, 0]),
        lambda x: R.broadcast_to(x, (5, 2, 3, 4)),
        lambda x: R.tile(x, (2, 1, 3)),
        lambda x: R.repeat(x, 2, -1),
        lambda x: R.repeat(x, 2),
        lambda x: R.flip(x, -1),
        lambda x: R.concat((x, x), -2),
        lambda x: R.stack((x, x), 1),
        lambda x: R.split(x, 2, -1),
        lambda x: R.split(x, [1, 2], 1),
        lambda x: R.split(x, 3, 2),
        lambda x: R.meshgrid((R.flatten(x), R.flatten(x))),
        lambda x: R.tril(x, 1),
        lambda x: R.triu(x, -1),
        lambda x: R.zeros_like(x),
        lambda x: R.full_like(x, relax.const(2.5, "float32")),
        lambda x: R.strided_slice(x, [1, -1], [0, -1], [2, -5], [1, -2]),
        lambda x: R.strided_slice(x, [2], [1], [100]),
        lambda x: R.layout_transform(x, lambda a, b, c: (c // 2, b, a, c % 2)),
        lambda x: R.layout_transform(x, lambda a, b, c: (a, b // 2, c, b % 2), pad_value=1.5),
    ],
)
def test_moving_elements(make):
    check(make, real(2, 3, 4))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(mode):
    check(lambda x: R.nn.pad(x, [0, 0, 1, 2, 2, 1], mode, 1.5), real(2, 3, 4))


@pytest.mark.parametrize(
    ("shape", "axis", "mode"),
    [((2, 3), 1, "fast"), ((), 0, "fast"), ((4,), -1, "wrap"), ((4,), 1, "clip"), ((4,), None, "fast")],
)
def test_take(shape, axis, mode):
    low, high = (0, 3) if mode == "fast" else (-3, 6)
    make = lambda x, i: R.take(x, i, axis, mode)  # noqa: E731
    check(make, real(12) if axis is None else real(3, 4, 5), whole(*shape, low=low, high=high, dtype="int64"))


def test_gathers():
    check(
        lambda x, i: R.gather_elements(x, i, 1), real(3, 4, 5), whole(2, 6, 5, low=0, high=4, dtype="int64")
    )
    check(lambda x, i: R.gather_nd(x, i), real(3, 4, 5), whole(7, 2, low=0, high=3, dtype="int64"))
    check(lambda x, i: R.gather_nd(x, i, 1), real(3, 4, 5), whole(3, 6, 1, low=0, high=4, dtype="int64"))
    check(lambda x, i: R.index_tensor(x, (i,)), real(3, 4), whole(6, low=0, high=3, dtype="int64"))
    one, zero = relax.prim_value(1), relax.prim_value(0)
    check(lambda i: R.one_hot(i, one, zero, 5, -1), whole(3, 4, low=0, high=5))
    check(lambda i: R.one_hot(i, one, zero, 5, 1), whole(3, 4, low=0, high=5))


CONVOLUTIONS = [
    ((2, 4, 7, 9), (6, 4, 3, 2), {}),
    ((1, 4, 8, 8), (6, 2, 3, 3), {"groups": 2, "strides": (2, 1), "padding": (1, 2, 0, 1)}),
    ((1, 4, 9, 9), (4, 1, 3, 3), {"groups": 4, "padding": 1, "dilation": (2, 3)}),
    ((1, 3, 6, 6), (8, 3, 1, 1), {"strides": 2}),
]


@pytest.mark.parametrize(("x", "weight", "attrs"), CONVOLUTIONS)
@pytest.mark.parametrize("layout", [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OHWI")])
def test_conv2d(x, weight, attrs, layout):
    order = ["NCHW".index(axis) for axis in layout[0]], ["OIHW".index(axis) for axis in layout[1]]
    data, kernel = real(*x).transpose(order[0]).copy(), real(*weight).transpose(order[1]).copy()
    check(
        lambda a, w: R.nn.conv2d(a, w, data_layout=layout[0], kernel_layout=layout[1], **attrs), data, kernel
    )


def test_conv1d_and_conv3d():
    check(lambda x, w: R.nn.conv1d(x, w, 2, (1, 2), 2), real(2, 3, 11), real(4, 3, 3))
    check(
        lambda x, w: R.nn.conv3d(x, w, (2, 1, 1), (1, 0, 1, 0, 1, 2), groups=2),
        real(1, 4, 5, 5, 5),
        real(2, 2, 2, 3, 2),
    )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_large_convolutions_are_computed_in_parts(
    rank: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((2, 4, *(7, 6, 5)[:rank]), np.float32)
    weight = rng.random((6, 4 // groups, *(3, 2, 2)[:rank]), np.float32)
    asked = ((2,) + (1,) * (rank - 1), ((1, 0),) * rank, (1,) * rank, groups)
    whole = convolution._convolved(x, weight, *asked)
    for limit in (1, 500):
        monkeypatch.setattr(convolution, "_COLUMN_BYTES", limit)
        np.testing.assert_allclose(convolution._convolved(x, weight, *asked), whole, rtol=1e-6)


def test_conv2d_of_small_integers_is_exact():
    x, weight = (whole(*shape, low=-128, high=127, dtype="int8") for shape in ((1, 40, 5, 5), (3, 40, 3, 3)))
    check(lambda x, w: R.nn.conv2d(x, w, out_dtype="int32"), x, weight)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"strides": (2, 3), "padding": (1, 0, 2, 1)},
        {"strides": 3, "output_padding": (2, 1), "padding": 1},
        {"groups": 2, "dilation": 2, "strides": 2},
    ],
)
def test_conv2d_transpose(attrs):
    weight = real(4, 3, 3, 2)
    check(lambda x, w: R.nn.conv2d_transpose(x, w, **attrs), real(2, 4, 5, 4), weight)


def test_conv1d_transpose_and_conv3d_transpose():
    check(lambda x, w: R.nn.conv1d_transpose(x, w, 2, 1, 1), real(2, 4, 5), real(4, 3, 3))
    check(lambda x, w: R.nn.conv3d_transpose(x, w, 2, 1), real(1, 4, 3, 3, 3), real(4, 2, 2, 3, 2))


POOLINGS = [
    {"pool_size": 2, "strides": 2},
    {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0, 1, 1)},
    {"pool_size": 3, "strides": 2, "padding": (0, 1, 1, 0), "ceil_mode": True},
    {"pool_size": 2, "strides": 3, "padding": 1, "ceil_mode": True},
    {"pool_size": 2, "strides": 1, "dilation": (2, 3), "padding": 1},
]


@pytest.mark.parametrize("attrs", POOLINGS)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("inside", [True, False])
def test_pool2d(attrs, layout, inside):
    x = real(2, 3, 8, 9) if layout == "NCHW" else real(2, 8, 9, 3)
    check(lambda x: R.nn.avg_pool2d(x, layout=layout, count_include_pad=inside, **attrs), x)
    check(lambda x: R.nn.max_pool2d(x, layout=layout, **attrs), x)


def test_pool_of_other_ranks_and_dtypes():
    check(lambda x: R.nn.max_pool1d(x, 3, 2, 1, ceil_mode=True), real(2, 3, 8))
    check(lambda x: R.nn.avg_pool1d(x, 3, 2, 1, count_include_pad=False), real(2, 3, 8))
    check(lambda x: R.nn.avg_pool3d(x, (2, 3, 1), (2, 1, 1), (1, 1, 0, 0, 1, 0)), real(2, 3, 5, 6, 4))
    check(lambda x: R.nn.max_pool2d(x, 3, 2, 1), whole(1, 2, 7, 7, dtype="int8"))
    check(lambda x: R.nn.avg_pool2d(x, 3, 2), whole(1, 2, 7, 7))
    check(lambda x: R.nn.max_pool2d(x, 2, 2, layout="NCHW4c"), real(1, 2, 6, 6, 4))


@pytest.mark.parametrize("size", [1, (7, 5)])
def test_adaptive_pool2d(size):
    check(lambda x: R.nn.adaptive_avg_pool2d(x, size), real(2, 3, 7, 5))


def test_normalizations():
    x, three = real(2, 6, 4, 3), real(3)
    check(lambda x, g, b: R.nn.layer_norm(x, g, b, [-1], 1e-3), x, three, real(3), tolerance=1e-5)
    check(lambda x, g, b: R.nn.layer_norm(x, g, b, [-2, -1]), x, real(4, 3), real(4, 3), tolerance=1e-5)
    check(lambda x, w: R.nn.rms_norm(x, w, [-1], 1e-4), x, three, tolerance=1e-5)


@pytest.mark.parametrize(
    "attrs", [{}, {"training": False}, {"center": False, "scale": False}, {"momentum": 0.3}]
)
def test_batch_norm(attrs):
    check(
        lambda x, *rest: R.nn.batch_norm(x, *rest, axis=1, **attrs),
        real(2, 3, 4, 5),
        real(3),
        real(3),
        real(3),
        positive(3),
        tolerance=1e-5,
    )


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("size", [(9, 4), (3, 8)])
def test_resize2d(mode, method, size):
    check(
        lambda x: R.image.resize2d(x, size, method=method, coordinate_transformation_mode=mode),
        real(1, 2, 5, 6),
        tolerance=2e-5,
    )


@pytest.mark.parametrize("rounding", ["round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resize2d_rounding(rounding):
    check(
        lambda x: R.image.resize2d(
            x,
            (8, 11),
            layout="NHWC",
            method="nearest_neighbor",
            rounding_method=rounding,
            coordinate_transformation_mode="asymmetric",
        ),
        real(1, 5, 6, 2),
    )


def test_quantization():
    scale, zero = positive(3), whole(3, low=-3, high=3, dtype="int8")
    check(lambda x, s, z: R.quantize(x, s, z, 1, "int8"), 90 * real(2, 3, 4), scale, zero)
    check(
        lambda x, s, z: R.dequantize(x, s, z, 1, "float32"),
        whole(2, 3, 4, low=-128, high=127, dtype="int8"),
        scale,
        zero,
    )
