"""Near misses of convolutions, products, windows and views: why a rule left what it had begun to recognise."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from prepare_checks import near_misses, prepared, values
from test_prepare_arithmetic import const
from test_prepare_clip import MaximumOfAnotherElement
from test_prepare_windows import imported_pad
from tvm import relax, tirx
from tvm.relax import op

from unity_collage.rewrites import DEFAULT_REWRITES, Rewrite
from unity_collage.rewrites import affine as f
from unity_collage.rewrites import arithmetic as r
from unity_collage.rewrites import attention as t
from unity_collage.rewrites import clip as c
from unity_collage.rewrites import constants as k
from unity_collage.rewrites import identity as i
from unity_collage.rewrites import padding as p
from unity_collage.rewrites import reductions as red
from unity_collage.rewrites import rms_norm as rms
from unity_collage.rewrites import slices as s
from unity_collage.rewrites import views as v
from unity_collage.rewrites.one_convolution import ONE_CONVOLUTION
from unity_collage.rewrites.split import SPLIT_INTO_WEIGHTS
from unity_collage.rewrites.sums import UNSTACK_REDUCTION
from unity_collage.rewrites.transposed import EXPAND_TRANSPOSED

IMAGE = (1, 3, 8, 8)
ROWS = (5, 8)
N = tirx.Var("n", "int64")
W3 = relax.const(values(3, 3, 3, 3))
W1 = relax.const(values(3, 3, 1, 1))
SQUARE = const(values(8, 8))
AROUND = (0, 0, 0, 0, 1, 1, 1, 1)


def of(make, *shapes: tuple[object, ...], dtype: str = "float32") -> relax.Function:
    """``make`` of parameters x, y, ... of these shapes."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(name, relax.TensorType(shape, dtype)) for name, shape in zip("xyz", shapes, strict=False)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(make(*params))
        builder.emit_func_output(result)
    return builder.get()["main"]


def conv(x: relax.Expr, weights: relax.Expr = W3, **attrs: object) -> relax.Expr:
    return op.nn.conv2d(x, weights, **{"padding": 1, **attrs})


def step(x: relax.Expr, begin: int = 0, end: int = 8, step: int = 2) -> relax.Expr:
    return op.strided_slice(x, [2, 3], [begin, 0], [end, 8], [step, 2])


def part(x: relax.Expr, index: int = 0) -> relax.Expr:
    return op.nn.relu(relax.TupleGetItem(x, index))


AFFINE = [
    (
        f.SCALE_INTO_WEIGHTS,
        lambda x: op.multiply(conv(x), const(values(8))),
        "the factor has the shape (8), not one",
    ),
    (f.SCALE_INTO_WEIGHTS, lambda x: op.divide(conv(x), const(0.0)), "a divisor is 0"),
    (
        f.SCALE_INTO_WEIGHTS,
        lambda x: op.multiply(op.add(conv(x), const(2)), const([inf])),
        "the factor is not finite",
    ),
    (
        f.SCALE_INTO_WEIGHTS,
        lambda x: op.multiply(op.add(conv(x), x), const(2)),
        "x, which add adds before the factor",
    ),
    (
        f.SCALE_INTO_WEIGHTS,
        lambda x: op.multiply(op.add(conv(x), const(values(8))), const(2)),
        "the summand before the factor has the shape (8)",
    ),
    (
        f.SCALE_INTO_WEIGHTS,
        lambda x: op.add(op.multiply(conv(x), const(2)), conv(x)),
        "(nn.conv2d) is read 2 times",
    ),
    (
        f.SCALE_INTO_WEIGHTS,
        lambda x: op.multiply(op.nn.conv2d(x, op.strided_slice(x, [0], [0], [1])), const(2)),
        "the weights of nn.conv2d, lv (strided_slice), are not constant",
    ),
    (
        f.SCALE_BEFORE_PERMUTE,
        lambda x: op.multiply(op.permute_dims(conv(x), [0, 2, 3, 1]), const(values(8, 1))),
        "the factor has the shape (8, 1), not one value for each output channel",
    ),
    (
        f.BIAS_SHAPE,
        lambda x: op.add(conv(x), const(values(8))),
        "the summand has the shape (8), not one value",
    ),
    (
        ONE_CONVOLUTION,
        lambda x: op.add(conv(x), conv(x, relax.const(values(3, 1, 3, 3)), groups=3)),
        "two convolutions of one input have the groups 1 and 3",
    ),
    (
        ONE_CONVOLUTION,
        lambda x: op.add(conv(x), conv(x, padding=2, dilation=2)),
        "windows of (3, 3) do not lie on taps of the windows of (3, 3)",
    ),
    (
        ONE_CONVOLUTION,
        lambda x: op.add(conv(x), op.multiply(x, const(values(8)))),
        "is not one finite number for each",
    ),
    (ONE_CONVOLUTION, lambda x: op.multiply(op.add(conv(x), x), conv(x)), "(nn.conv2d) is read 2 times"),
    (
        EXPAND_TRANSPOSED,
        lambda x: op.nn.conv2d_transpose(x, W3, dilation=2),
        "conv2d_transpose stays: it is dilated",
    ),
]
WINDOWS = [
    (
        p.PAD_INTO_WINDOW,
        lambda x: conv(op.nn.pad(x, AROUND, "constant", 1.0)),
        "is 1, and convolutions pad with 0",
    ),
    (
        p.PAD_INTO_WINDOW,
        lambda x: conv(op.nn.pad(x, AROUND, "reflect")),
        "nn.pad has the mode reflect, not constant",
    ),
    (
        p.PAD_INTO_WINDOW,
        lambda x: op.nn.max_pool2d(op.nn.pad(x, AROUND), (3, 3)),
        "is 0, which may be the maximum of",
    ),
    (
        p.PAD_INTO_WINDOW,
        lambda x: conv(op.nn.pad(x, (0, 1, 0, 0, 1, 1, 1, 1))),
        "the axes [0] are padded, along which no window slides",
    ),
    (
        p.PAD_INTO_WINDOW,
        lambda x: op.nn.max_pool2d(op.nn.pad(op.nn.relu(x), AROUND), (1, 1), strides=2),
        "a window of the pool may lie in the padding alone",
    ),
    (
        p.PAD_INTO_WINDOW,
        lambda x: op.nn.avg_pool2d(op.nn.pad(x, AROUND), (3, 3), padding=1),
        "has padding of its own",
    ),
    (
        p.PAD_INTO_WINDOW,
        lambda x: op.nn.avg_pool2d(op.nn.pad(x, AROUND), (3, 3), strides=2, ceil_mode=True),
        "the pool rounds its size up",
    ),
    (
        red.GLOBAL_MEAN,
        lambda x: op.nn.avg_pool2d(x, (7, 7), strides=2),
        "the pool is (7, 7), and the image (8, 8)",
    ),
    (
        s.POOL_OF_ONE,
        lambda x: op.nn.max_pool2d(x, (1, 1), strides=2, padding=1),
        "a pool of one element has padding",
    ),
    (
        s.MERGE_SLICES,
        lambda x: op.strided_slice(op.strided_slice(x, [2], [7], [0], [-1]), [2], [1], [4]),
        "strided_slice has the steps (-1), not positive ones",
    ),
    (
        s.SLICE_OF_PAD,
        lambda x: op.strided_slice(op.nn.pad(x, (0, 0, 0, 0, 0, 2, 0, 0)), [2], [8], [9]),
        "strided_slice reads nothing but padding along axis 2",
    ),
    (
        s.SLICE_INTO_CONVOLUTION,
        lambda x: conv(step(x, 1), W1, padding=0),
        "does not begin at the first pixel",
    ),
    (
        s.SLICE_INTO_CONVOLUTION,
        lambda x: conv(step(x)),
        "the convolution has windows of (3, 3), not of one pixel",
    ),
    (
        s.SLICE_INTO_CONVOLUTION,
        lambda x: conv(step(x, end=5), W1, padding=0),
        "leaves out pixels at the end of the",
    ),
    (
        s.SLICE_INTO_CONVOLUTION,
        lambda x: conv(step(x), W1),
        "the convolution has the padding (1, 1, 1, 1), not 0",
    ),
    (s.TAKE_AS_SLICE, lambda x: op.take(x, const([2], "int64"), 1), "the index of take has 1 axes, not 0"),
    (
        s.TAKE_AS_SLICE,
        lambda x: op.take(x, const(9, "int64"), 1, "clip"),
        "the index of take is 9, not from 0 to 2",
    ),
    (
        i.DROP_WHOLE_SLICE,
        lambda x: op.strided_slice(x, [3], [7], [-9], [-1]),
        "the size of its operand, but not the",
    ),
    (i.DROP_NEUTRAL, lambda x: op.add(op.sum(x, 0), const(np.zeros((1, 3, 8, 8)))), "add with 0 makes"),
    (
        i.DROP_RESIZE_TO_ITS_SIZE,
        lambda x: op.image.resize2d(x, (8, 8), coordinate_transformation_mode="tf_half_pixel_for_nn"),
        "resize has the coordinates tf_half_pixel_for_nn, which move pixels",
    ),
]
PRODUCTS = [
    (
        t.ABSORB_FACTOR,
        lambda x: op.multiply(op.matmul(op.tanh(x), op.permute_dims(x)), const(0.3)),
        "neither operand of matmul is made of constant weights",
    ),
    (
        t.ABSORB_FACTOR,
        lambda x: op.add(op.multiply(op.matmul(x, SQUARE), const(2)), op.matmul(x, SQUARE)),
        "is read 2",
    ),
    (
        t.ABSORB_FACTOR,
        lambda x: op.multiply(op.add(op.matmul(x, SQUARE), x), const(2)),
        "x, which add adds before",
    ),
    (
        t.FACTOR_AFTER_PRODUCT,
        lambda x: op.matmul(op.multiply(x, const(2)), op.permute_dims(op.multiply(x, const(2)))),
        "(multiply) is read 2 times",
    ),
    (
        t.PRODUCT_DIVIDED,
        lambda x: op.divide(op.matmul(x, SQUARE), const(values(8))),
        "a constant of 8 elements, not",
    ),
    (
        SPLIT_INTO_WEIGHTS,
        lambda x: part(op.split(op.matmul(x, SQUARE), 5, 0)),
        "split is along the axis 0 of matmul, not along its columns",
    ),
    (
        SPLIT_INTO_WEIGHTS,
        lambda x: part(op.split(op.reshape(op.matmul(x, SQUARE), (2, 20)), 2, 0)),
        "the axis 0 of (2, 20) is not a part of one axis of (5, 8)",
    ),
    (
        SPLIT_INTO_WEIGHTS,
        lambda x: part(op.split(op.matmul(op.reshape(x, (1, 40)), const(values(40, 6))), 3, 1)),
        "matmul has one row, and its parts are contiguous",
    ),
    (
        v.ROWS_BEFORE_PRODUCT,
        lambda x: op.reshape(op.add(op.matmul(op.reshape(x, (5, 8)), SQUARE), x), (1, 5, 8)),
        "the summand of matmul has the shape (5, 8), not one value for each column",
    ),
    (
        v.UNIT_AXES_FIRST,
        lambda x: op.add(
            op.reshape(op.permute_dims(op.reshape(x, (5, 1, 8)), [1, 2, 0]), (8, 5)),
            op.sum(op.permute_dims(op.reshape(x, (5, 1, 8)), [1, 2, 0]), 0),
        ),
        "(permute_dims) is read 2 times",
    ),
    (
        UNSTACK_REDUCTION,
        lambda x: op.sum(op.stack((x, op.tanh(x)), 0), 1),
        "is over the axes [1], and stack made the",
    ),
    (
        UNSTACK_REDUCTION,
        lambda x: op.sum(op.stack((x, op.tanh(x)), 0), 0, True),
        "sum keeps the axis that stack made",
    ),
    (
        k.FOLD_CONSTANTS,
        lambda x: op.add(op.full((1 << 10, 5, 8 * 16), const(1.0)), op.sum(x)),
        "full makes 655360 ele",
    ),
]


@pytest.mark.parametrize(
    ("rule", "make", "reason", "shape"),
    [(*case, IMAGE) for case in (*AFFINE, *WINDOWS)] + [(*case, ROWS) for case in PRODUCTS],
)
def test_a_near_miss_has_a_reason(rule: Rewrite, make, reason: str, shape: tuple[int, ...]):
    (miss,) = near_misses(prepared(of(make, shape)), rule)  # equal values are one before the rule is asked
    assert miss.rule == rule.name and reason in miss.reason


@pytest.mark.parametrize(
    ("rule", "make", "reason"),
    [
        (
            v.RESHAPE_FORM,
            lambda x: op.expand_dims(x, 0),
            "the shape of expand_dims or of its operand is not known",
        ),
        (
            s.MERGE_SLICES,
            lambda x: op.strided_slice(op.strided_slice(x, [1], [1], [3]), [1], [1], [2]),
            "not known",
        ),
        (
            k.FOLD_SHAPE_TO_TENSOR,
            lambda x: op.shape_to_tensor(op.shape_of(x)),
            "the shape has symbolic dimensions",
        ),
    ],
)
def test_what_is_not_known_of_a_symbolic_shape_is_a_reason(rule: Rewrite, make, reason: str):
    found = near_misses(of(make, (N, 3)), k.FOLD_SHAPE_OF, rule)
    assert any(miss.rule == rule.name and reason in miss.reason for miss in found)


@pytest.mark.parametrize(
    ("rule", "make", "dtype", "reason"),
    [
        (
            r.SUBTRACT_CONSTANT,
            lambda x: op.subtract(x, const(2, "uint8")),
            "uint8",
            "has no negative numbers",
        ),
        (
            r.SQUARE_FORM,
            lambda x: op.multiply(x, x),
            "int32",
            "multiply is of int32, not of a floating point type",
        ),
        (r.DOUBLE_FORM, lambda x: op.add(x, x), "int32", "add is of int32"),
        (c.CLIP_FORM, lambda x: op.maximum(x, const(2, "int32")), "int32", "the bound of maximum is int32"),
        (rms.RMS_NORM_FORM, lambda x: rooted(x, "float64"), "float64", "rms_norm takes float32, not float64"),
    ],
)
def test_a_type_that_a_rule_does_not_take_is_a_reason(rule: Rewrite, make, dtype: str, reason: str):
    (miss,) = near_misses(prepared(of(make, ROWS, dtype=dtype)), rule)
    assert miss.rule == rule.name and reason in miss.reason


def rooted(x: relax.Expr, dtype: str) -> relax.Expr:
    return op.divide(x, op.sqrt(op.add(op.mean(op.square(x), -1, True), const(1e-5, dtype))))


def test_a_pad_that_an_attribute_cannot_hold_is_a_reason():
    (miss,) = near_misses(imported_pad(op.nn.relu, (0, 0, 1, 1), (0, 0, 1, 1), -inf), p.PAD_FORM)
    assert "the value of the padding is -inf, which nn.pad cannot hold" in miss.reason


def test_a_prim_func_that_reads_another_element_is_a_reason():
    (miss,) = near_misses(MaximumOfAnotherElement, c.EXTREMUM_OF_CALL_TIR)
    assert "the left operand of max is not an element of an input at the index of the output" in miss.reason


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.nn.relu(op.add(conv(x), const(values(3, 1, 1)))),
        lambda x: op.add(conv(op.nn.relu(x)), x),
        lambda x: op.multiply(conv(x), op.sigmoid(op.mean(x, [2, 3], True))),
        lambda x: op.nn.max_pool2d(conv(x), (2, 2), strides=2),
        lambda x: op.nn.conv2d(op.concat((x, op.tanh(x)), 1), relax.const(values(3, 6, 3, 3))),
    ],
)
def test_nothing_is_said_of_an_ordinary_convolution(make):
    assert near_misses(of(make, IMAGE), *DEFAULT_REWRITES) == ()
