"""Matrix products lowered to oneDNN and OpenBLAS, with what goes before and behind them, against numpy."""

from __future__ import annotations

import pytest
from lowered_function import assert_same_numbers, constant, function, nn, op
from tvm import relax

from unity_collage import runtime

SHAPES = [
    ((5, 7), (7, 3)),
    ((2, 5, 7), (7, 3)),
    ((7,), (7, 3)),
    ((5, 7), (7,)),
    ((7,), (7,)),
    ((2, 5, 7), (2, 7, 3)),
    ((2, 1, 5, 7), (1, 3, 7, 4)),
    ((5, 7), (2, 7, 3)),
    ((7,), (2, 7, 3)),
    ((2, 5, 7), (1, 7, 3)),
    ((2, 3, 5, 7), (3, 7, 4)),
]


@pytest.fixture(params=["onednn", "openblas"])
def library(request: pytest.FixtureRequest) -> str:
    if reason := runtime.why_unavailable(request.param):
        pytest.skip(reason)
    return request.param


def heads(x):
    return op.permute_dims(op.reshape(x, (1, 6, 2, 8)), (0, 2, 1, 3))


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_every_form_of_a_product(library, left, right):
    assert_same_numbers(library, function(op.matmul, left, right))


@pytest.mark.parametrize("left", [(5, 7), (2, 5, 7), (7,), (1, 7)])
def test_a_product_with_weights_scale_and_bias_is_one_step(library, left):
    func = function(
        lambda x: op.add(op.multiply(op.matmul(x, constant(7, 3)), relax.const(0.5)), constant(3, seed=1)),
        left,
    )
    assert assert_same_numbers(library, func).count("step") == 1


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        (lambda x: op.matmul(x, op.permute_dims(constant(3, 7))), [(5, 7)]),
        (lambda x: op.matmul(op.permute_dims(x), constant(7, 3)), [(7, 5)]),
        (lambda x: op.matmul(op.strided_slice(x, axes=[1], begin=[2], end=[9]), constant(7, 3)), [(5, 12)]),
        (lambda x, y: op.matmul(heads(x), op.permute_dims(heads(y), (0, 1, 3, 2))), [(1, 6, 16), (1, 6, 16)]),
        (
            lambda p, v: op.reshape(op.permute_dims(op.matmul(p, heads(v)), (0, 2, 1, 3)), (1, 6, 16)),
            [(1, 2, 6, 6), (1, 6, 16)],
        ),
        (
            lambda x: op.matmul(
                heads(op.split(x, 3, axis=2)[1]),
                op.permute_dims(heads(op.split(x, 3, axis=2)[2]), (0, 1, 3, 2)),
            ),
            [(1, 6, 48)],
        ),
    ],
)
def test_layout_changes_around_a_product_cost_no_step(library, body, shapes):
    chosen = assert_same_numbers(library, function(body, *shapes))
    assert chosen.count("step") == 1


@pytest.mark.parametrize("mask", [(2, 1, 1, 5), (1, 1, 1, 5), (5,), (2, 1, 5, 5), (2, 3, 5, 5)])
def test_a_mask_is_added_in_the_product(library, mask):
    func = function(
        lambda x, y, m: op.add(op.multiply(op.matmul(x, y), relax.const(0.125)), m),
        (2, 3, 5, 7),
        (2, 3, 7, 5),
        mask,
    )
    chosen = assert_same_numbers(library, func)
    if library == "onednn":
        assert chosen.count("step") == 1
        assert "ref" not in chosen


def test_two_products_in_one_program(library):
    func = function(lambda x: op.matmul(op.matmul(x, constant(7, 9)), constant(9, 4)), (5, 7))
    assert_same_numbers(library, func)


def test_two_results(library):
    func = function(
        lambda x: relax.Tuple([op.matmul(x, constant(7, 3)), op.matmul(x, constant(7, 4))]), (5, 7)
    )
    assert_same_numbers(library, func)


@pytest.mark.parametrize(("kernel", "layout"), [((4, 8, 1, 1), "OIHW"), ((1, 1, 8, 4), "HWIO")])
def test_a_convolution_of_one_tap_in_every_library(library, kernel, layout):
    def body(x):
        made = nn.conv2d(x, constant(*kernel), data_layout="NHWC", kernel_layout=layout)
        return op.add(made, constant(1, 1, 1, 4))

    assert_same_numbers(library, function(body, (2, 9, 10, 8)))


def test_gelu_behind_a_product():
    if reason := runtime.why_unavailable("onednn"):
        pytest.skip(reason)
    func = function(
        lambda x, r: op.add(nn.gelu(op.add(op.matmul(x, constant(7, 16)), constant(16))), r),
        (2, 5, 7),
        (2, 5, 16),
    )
    chosen = assert_same_numbers("onednn", func)
    assert chosen.count("step") == 1
    assert "ref" not in chosen
