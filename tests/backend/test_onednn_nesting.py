"""oneDNN reads layouts off the strides of dimensions of one element, which a reshape leaves as they come."""

import pytest
from lowered_function import assert_same_numbers, bound, constant, function, nn, op
from tvm import relax


def image(tokens: relax.Expr, side: int) -> relax.Expr:
    """(1, pixels, channels) as an image with channels last, by way of one with channels first, as vision transformers
    write it."""
    channels = int(tokens.ty.shape.values[2])
    first = bound(op.reshape(bound(op.permute_dims(tokens, (0, 2, 1))), (1, channels, side, side)))
    return bound(op.permute_dims(first, (0, 2, 3, 1)))


def conv(x: relax.Expr, weights: relax.Expr, **attrs: object) -> relax.Expr:
    return nn.conv2d(x, weights, data_layout="NHWC", kernel_layout="HWIO", **attrs)


CASES = {
    "depthwise": (
        lambda x: op.reshape(
            bound(nn.gelu(bound(conv(image(x, 8), constant(3, 3, 1, 32), padding=1, groups=32)))), (1, 64, 32)
        ),
        [(1, 64, 32)],
    ),
    "pointwise": (lambda x: conv(image(x, 8), constant(1, 1, 32, 16)), [(1, 64, 32)]),
    "a_row_of_pixels": (
        lambda x: conv(bound(op.reshape(bound(op.permute_dims(x)), (1, 1, 64, 32))), constant(1, 3, 32, 16)),
        [(32, 64)],
    ),
    "one_pixel": (
        lambda x: conv(bound(op.reshape(x, (1, 1, 1, 32))), constant(1, 1, 32, 16)),
        [(32,)],
    ),
    "max_pool": (lambda x: nn.max_pool2d(image(x, 8), (2, 2), (2, 2), layout="NHWC"), [(1, 64, 32)]),
    "product_of_one_matrix": (
        lambda x: op.matmul(bound(op.reshape(x, (1, 8, 32))), constant(1, 32, 16)),
        [(8, 4, 8)],
    ),
    "product_of_one_row": (
        lambda x: op.reshape(bound(op.matmul(bound(op.reshape(x, (1, 64))), constant(64, 32))), (4, 8)),
        [(8, 8)],
    ),
    "product_of_one_column_into_pixels": (
        lambda x: op.permute_dims(bound(op.matmul(x, constant(2, 2, 1, 24, 1))), (4, 2, 0, 3, 1)),
        [(1, 1, 20, 20, 24)],
    ),
    "softmax": (lambda x: nn.softmax(bound(op.reshape(x, (1, 8, 32)))), [(8, 32)]),
    "sum": (lambda x, y: op.add(bound(op.reshape(x, (1, 32, 8))), y), [(32, 8), (1, 32, 8)]),
}


@pytest.mark.parametrize("name", CASES)
def test_no_reference_kernel(name):
    body, shapes = CASES[name]
    chosen = assert_same_numbers("onednn", function(body, *shapes))
    assert "ref:any" not in chosen
