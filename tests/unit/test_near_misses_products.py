"""Near misses of convolutions, products, windows and views: why a rule left what it had begun to recognise."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from prepare_checks import near_misses, prepared, values
from test_prepare_arithmetic import const
from tvm import relax
from tvm.relax import op

from unity_collage.rewrites import Rule
from unity_collage.rewrites import affine as f
from unity_collage.rewrites import attention as t
from unity_collage.rewrites import constants as k
from unity_collage.rewrites import identity as i
from unity_collage.rewrites import padding as p
from unity_collage.rewrites import reductions as red
from unity_collage.rewrites import slices as s
from unity_collage.rewrites import views as v
from unity_collage.rewrites.one_convolution import ONE_CONVOLUTION
from unity_collage.rewrites.split import SPLIT_INTO_WEIGHTS
from unity_collage.rewrites.sums import UNSTACK_REDUCTION
from unity_collage.rewrites.transposed import EXPAND_TRANSPOSED

IMAGE = (1, 3, 8, 8)
ROWS = (5, 8)
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
    (ONE_CONVOLUTION, lambda x: op.add(conv(x), conv(x, W1, padding=0, strides=1, groups=1)), None),
    (
        ONE_CONVOLUTION,
        lambda x: op.add(conv(x), conv(x, relax.const(values(3, 1, 3, 3)), groups=3)),
        "two convolutions of one input have the groups 1 and 3",
    ),
    (
        ONE_CONVOLUTION,
        lambda x: op.add(conv(x), conv(x, relax.const(values(3, 3, 2, 2)), padding=(1, 1, 0, 0), dilation=1)),
        None,
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
    (k.PRINTABLE_SCALARS, lambda x: op.maximum(op.sum(x), relax.const(inf)), None),
]


@pytest.mark.parametrize(
    ("rule", "make", "reason", "shape"),
    [(*case, IMAGE) for case in (*AFFINE, *WINDOWS)] + [(*case, ROWS) for case in PRODUCTS],
)
def test_a_near_miss_has_a_reason(rule: Rule, make, reason: str | None, shape: tuple[int, ...]):
    found = near_misses(prepared(of(make, shape)), rule)  # equal values are one before the rule is asked
    assert [miss.rule for miss in found] == ([] if reason is None else [rule.name])
    assert all(reason in miss.reason for miss in found)
