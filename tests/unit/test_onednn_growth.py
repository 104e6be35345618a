"""What a primitive takes behind and before it: bias, post-operations, layout changes; and why it declines the rest."""

from __future__ import annotations

from typing import Any

import pytest
from relax_calls import bindings, bound, constant, function, nn, op
from tvm import relax

from unity_collage.backends import onednn as backend
from unity_collage.backends.onednn.backend import ONEDNN
from unity_collage.graph import DataflowGraph
from unity_collage.index_set import to_text
from unity_collage.rules import Found
from unity_collage.rules.base import Declined
from unity_collage.target import host_target

onednn: Any = backend
"""Answers are steps or reasons; each test knows which."""


def grown(body, *shapes) -> Any:
    """The step of the first binding, with each later one put behind it."""
    first, *later = bindings(body, *shapes)
    made = onednn.step(first.value)
    result = first.var
    for binding in later:
        if isinstance(made, str):
            return made
        operand = next(i for i, arg in enumerate(binding.value.args) if arg == result)
        through = onednn.absorbed_output(made, binding.value)
        made = onednn.fused(made, binding.value, operand) if isinstance(through, str) else through
        result = binding.var
    return made


def conv(x, **more):
    return nn.conv2d(x, constant(4, 8, 3, 3), padding=(1, 1), data_layout="NHWC", **more)


def post_ops(made):
    return [(post.kind, post.algorithm) for post in made.post_ops]


IMAGE = (1, 5, 5, 8)


@pytest.mark.parametrize("shape", [(4,), (1, 1, 1, 4)])
def test_the_first_addend_of_each_channel_is_the_bias(shape):
    made = grown(lambda x, b: nn.relu(op.add(b, conv(x))), IMAGE, shape)
    assert (made.arg("bias").dims, made.arg("bias").strides) == ((4,), (1,))
    assert post_ops(made) == [("eltwise", "relu")]


def test_a_second_bias_is_a_post_operation():
    made = grown(lambda x, b: op.add(op.add(conv(x), b), b), IMAGE, (4,))
    assert post_ops(made) == [("binary", "add")]
    assert made.post_ops[0].arg.dims == (1, 4, 1, 1)


@pytest.mark.parametrize("flipped", [False, True])
def test_a_residual_is_a_binary_post_operation(flipped):
    made = grown(lambda x, r: op.add(r, conv(x)) if flipped else op.add(conv(x), r), IMAGE, (1, 5, 5, 4))
    assert post_ops(made) == [("binary", "add")]
    assert made.post_ops[0].arg.strides == made.result.strides


def test_a_result_on_the_right_of_a_difference_changes_sign():
    made = grown(lambda x, r: op.subtract(r, conv(x)), IMAGE, (1, 5, 5, 4))
    assert post_ops(made) == [("binary", "sub"), ("eltwise", "linear")]


def test_scales_in_a_row_are_one():
    made = grown(
        lambda x: op.add(
            op.multiply(op.multiply(conv(x), relax.const(2.0)), relax.const(3.0)), relax.const(1.0)
        ),
        IMAGE,
    )
    assert [(p.algorithm, p.alpha, p.beta) for p in made.post_ops] == [("linear", 6.0, 1.0)]


@pytest.mark.parametrize(
    ("body", "shapes", "reason"),
    [
        (lambda x: op.exp(nn.relu(x)), [IMAGE], "eltwise takes no post-operations"),
        (lambda x: op.sin(conv(x)), [IMAGE], "relax.sin is not element-wise"),
        (lambda x, r: op.add(conv(x), r), [IMAGE, (7, 1, 1, 1, 4)], "broadcasts the result"),
        (lambda x, r: op.multiply(conv(x), r), [(2, *IMAGE[1:]), (2, 1, 1, 4)], "takes no post-operand"),
        (lambda x, r: op.add(conv(x), r), [IMAGE, (1, 5, 5, 1)], "takes no post-operand"),
        (
            lambda x, r: op.add(nn.conv2d(x, constant(4, 8, 1, 1)), r),
            [(1, 8, 5, 5), (1, 4, 5, 5)],
            "takes no post-operand",
        ),
        (lambda x, y: op.less(op.matmul(x, constant(4, 3)), y), [(5, 4), (5, 3)], "the result is bool"),
        (lambda x, y: op.add(op.matmul(x, constant(4, 3)), y), [(5, 4), (5, 1)], "takes no post-operand"),
        (lambda x, y: op.multiply(nn.softmax(x), y), [(5, 4), (5, 4)], "takes no post-operand"),
    ],
)
def test_what_does_not_go_behind_has_a_reason(body, shapes, reason):
    made = grown(body, *shapes)
    assert isinstance(made, str)
    assert reason in made


def test_a_result_added_to_itself_is_refused():
    def doubled(x):
        result = bound(conv(x))
        return op.add(result, result)

    first, second = bindings(doubled, IMAGE)
    assert onednn.fused(onednn.step(first.value), second.value, 0) == "both operands are the result"


def test_heads_are_read_and_written_through_strides():
    heads = bindings(
        lambda x, y: op.reshape(
            op.permute_dims(
                op.matmul(x, op.permute_dims(op.reshape(y, (1, 6, 2, 8)), (0, 2, 1, 3))), (0, 2, 1, 3)
            ),
            (1, 6, 16),
        ),
        (1, 2, 6, 6),
        (1, 6, 16),
    )
    split, permuted, product, back, joined = heads
    made = onednn.step(product.value)
    made = onednn.absorbed_input(made, permuted.var, permuted.value)
    made = onednn.absorbed_input(made, split.var, split.value)
    made = onednn.absorbed_output(made, back.value)
    made = onednn.absorbed_output(made, joined.value)
    assert made.arg("weights").buffer == split.value.args[0]
    for view in (made.arg("weights"), made.result):
        assert (view.dims, view.strides[1:]) == ((1, 2, 6, 8), (8, 16, 1))
    assert made.result.buffer == joined.value


def test_a_convolution_that_reads_the_other_layout_is_not_complete():
    permuted, convolution = bindings(lambda x: conv(op.permute_dims(x, (0, 2, 3, 1))), (1, 8, 5, 5))
    made = onednn.absorbed_input(onednn.step(convolution.value), permuted.var, permuted.value)
    assert "not dense in one layout" in onednn.why_partial(made)


def test_a_kernel_that_changes_layouts_on_both_sides_is_a_candidate_and_on_one_side_is_none():
    """0 permute_dims, 1 conv2d_transpose, 2 add, 3 permute_dims."""

    def body(x):
        y = nn.conv2d_transpose(op.permute_dims(x, (0, 3, 1, 2)), constant(8, 4, 3, 3), strides=(2, 2))
        return op.permute_dims(op.add(y, constant(1, 4, 1, 1)), (0, 2, 3, 1))

    graph = DataflowGraph(function(body, (1, 5, 5, 8)))
    answers = list(ONEDNN.rule(host_target()).apply(graph))
    found = {to_text(a.inside) for a in answers if isinstance(a, Found) and a.inside & 0b10}
    assert found == {"{1}", "{1,2}", "{0..3}"}
    (reason,) = (
        a.reason for a in answers if isinstance(a, Declined) and a.index == 3 and "alone" in a.reason
    )
    assert "not dense in one layout" in reason


def test_a_slice_of_a_product_operand_is_an_offset():
    cut, product = bindings(
        lambda x: op.matmul(op.strided_slice(x, axes=[1], begin=[2], end=[6]), constant(4, 3)), (5, 9)
    )
    view = onednn.absorbed_input(onednn.step(product.value), cut.var, cut.value).arg("src")
    assert (view.dims, view.strides, view.offset) == ((5, 4), (9, 1), 2)


def test_only_layout_changes_are_read_through():
    relu, product = bindings(lambda x: op.matmul(nn.relu(x), constant(9, 3)), (5, 9))
    assert onednn.absorbed_input(onednn.step(product.value), relu.var, relu.value) == "not a layout change"
