"""Relax operators as graphs of cuDNN's operations: proposals, views, constants and reasons, without the library."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from relax_calls import bindings, bound, call, constant, function, nn, op
from rule_checks import proposals
from tvm import relax

from unity_collage.backends import cudnn as backend
from unity_collage.backends.cudnn.backend import CUDNN
from unity_collage.backends.native.lowering import NotLowerable
from unity_collage.index_set import to_text
from unity_collage.target import host_target

cudnn: Any = backend
"""Answers are steps or reasons; each test knows which."""

CONVOLUTION, ATTENTION = "cudnn.engine1", "cudnn.attention0"
IMAGE = (1, 5, 6, 8)


def conv(x: Any, weights: Any = None, **more: Any) -> Any:
    """A convolution of 3x3 with padding, of 8 to 4 channels unless ``weights`` say otherwise; channels last."""
    weights = constant(3, 3, 8, 4) if weights is None else weights
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": (1, 1)}
    return nn.conv2d(x, weights, **{**layouts, **more})


def typed(dtype: str, *shape: int) -> Any:
    return relax.const(np.ones(shape, dtype))


def grown(label: str, body: Any, *shapes: Any, dtype: str = "float32") -> Any:
    """The step of the first binding, with each later one put behind it."""
    first, *later = bindings(body, *shapes, dtype=dtype)
    made, result = cudnn.step(label, first.value), first.var
    for binding in later:
        if isinstance(made, str):
            return made
        operand = next(i for i, arg in enumerate(binding.value.args) if arg == result)
        through = cudnn.absorbed_output(made, binding.value)
        made = cudnn.fused(made, binding.value, operand) if isinstance(through, str) else through
        result = binding.var
    return made


def lowered(label: str, body: Any, *shapes: Any, dtype: str = "float32") -> tuple[Any, Any, bytearray]:
    """The one step of a function, its program, and the constants."""
    func = function(body, *shapes, dtype=dtype).with_attr("Composite", label)
    text, blob = cudnn.lower([func], ["f"])
    (program,) = json.loads(text)["programs"]
    (step,) = program["steps"]
    return step, program, blob


def seen(view: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(view["dims"]), tuple(view["strides"])


def post_ops(made: Any) -> list[str]:
    return [post.algorithm for post in made.post_ops]


def test_constant_weights_get_the_layout_of_the_source():
    weights = np.arange(3 * 2 * 8 * 4, dtype="float32").reshape(3, 2, 8, 4)
    step, program, blob = lowered(CONVOLUTION, lambda x: conv(x, relax.const(weights)), IMAGE)
    view = step["args"]["weights"]
    assert seen(view) == ((4, 8, 3, 2), (48, 1, 16, 8))
    (place,) = [c for c in program["constants"] if c["buffer"] == view["buffer"]]
    stored = np.frombuffer(bytes(blob[place["offset"] : place["offset"] + place["nbytes"]]), "float32")
    assert (stored == weights.transpose(3, 0, 1, 2).reshape(-1)).all()
    assert step["attrs"] == {
        "strides": [1, 1],
        "dilates": [0, 0],
        "padding_l": [1, 1],
        "padding_r": [1, 1],
        "groups": 1,
        "algorithm": 1,
        "tf32": 0,
    }


def test_weights_that_have_the_layout_of_the_source_are_stored_as_they_are():
    kernel: Any = constant(4, 8, 3, 3)
    step, _, blob = lowered(CONVOLUTION, lambda x: nn.conv2d(x, kernel), (1, 8, 5, 6))
    assert seen(step["args"]["weights"]) == ((4, 8, 3, 3), (72, 9, 3, 1))
    assert bytes(blob) == kernel.value.numpy().tobytes()


def test_groups_show_in_the_channels_of_the_weights():
    step, _, _ = lowered(
        CONVOLUTION, lambda x: conv(x, constant(3, 3, 8, 1), groups=8, kernel_layout="HWOI"), IMAGE
    )
    assert seen(step["args"]["weights"]) == ((8, 1, 3, 3), (9, 1, 3, 1))


@pytest.mark.parametrize(
    ("layouts", "kernel", "shape", "source"),
    [
        (("NCW", "OIW"), (4, 8, 3), (2, 8, 9), ((2, 8, 1, 9), (72, 9, 9, 1))),
        (("NWC", "WIO"), (3, 8, 4), (2, 9, 8), ((2, 8, 1, 9), (72, 1, 72, 8))),
    ],
)
def test_a_row_is_an_image_of_height_1(layouts, kernel, shape, source):
    data, weights = layouts

    def body(x: Any) -> Any:
        made = nn.conv1d(x, constant(*kernel), strides=2, padding=1, data_layout=data, kernel_layout=weights)
        return op.add(made, constant(4, 1) if data == "NCW" else constant(4))

    step, _, _ = lowered(CONVOLUTION, body, shape)
    assert seen(step["args"]["src"]) == source
    assert step["attrs"]["strides"] == [1, 2] and step["attrs"]["padding_l"] == [0, 1]
    assert step["args"]["bias"]["dims"] == [4]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bias_residual_and_activation_are_one_step(dtype):
    bias = typed(dtype, 1, 1, 1, 4)
    made = grown(
        CONVOLUTION,
        lambda x, r: nn.relu(op.add(r, op.add(conv(x, typed(dtype, 3, 3, 8, 4)), bias))),
        IMAGE,
        (1, 5, 6, 4),
        dtype=dtype,
    )
    assert (made.arg("bias").dims, made.arg("bias").dtype) == ((4,), dtype)
    assert post_ops(made) == ["add", "relu"]
    assert made.post_ops[0].arg.strides == made.result.strides


def test_factors_and_numbers_of_each_channel_are_pointwise():
    made = grown(
        CONVOLUTION,
        lambda x: nn.silu(
            op.multiply(op.multiply(op.add(conv(x), constant(4)), constant(4)), relax.const(2.0))
        ),
        IMAGE,
    )
    assert post_ops(made) == ["mul", "linear", "swish"]
    assert made.post_ops[0].arg.dims == (1, 4, 1, 1)


def test_narrow_operands_are_widened_and_the_result_is_rounded_once():
    def body(x: Any, r: Any) -> Any:
        made = conv(x, typed("float16", 3, 3, 8, 4), out_dtype="float32")
        return op.astype(op.add(made, op.astype(r, "float32")), "float16")

    step, program, _ = lowered(CONVOLUTION, body, IMAGE, (1, 5, 6, 4), dtype="float16")
    (residual,) = [post["arg"] for post in step["post_ops"]]
    assert (residual["dtype"], residual["buffer"]) == ("float16", program["inputs"][1])
    assert step["args"]["dst"]["dtype"] == "float16"


def test_permutations_on_both_sides_are_strides():
    def body(x: Any) -> Any:
        made = nn.conv2d(op.permute_dims(x, (0, 3, 1, 2)), constant(4, 8, 3, 3))
        return op.permute_dims(made, (0, 2, 3, 1))

    step, _, _ = lowered(CONVOLUTION, body, IMAGE)
    assert seen(step["args"]["src"]) == ((1, 8, 5, 6), (240, 1, 48, 8))
    assert seen(step["args"]["weights"]) == ((4, 8, 3, 3), (72, 1, 24, 8))
    assert seen(step["args"]["dst"]) == ((1, 4, 3, 4), (48, 1, 16, 4))


def heads(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attention of (batch, position, head * size), with two heads of 16 numbers."""
    split = [bound(op.reshape(x, (2, 9, 2, 16))) for x in (q, k, v)]
    query, value = (bound(op.permute_dims(x, (0, 2, 1, 3))) for x in (split[0], split[2]))
    scores = op.matmul(query, op.permute_dims(split[1], (0, 2, 3, 1)))
    scores = op.add(op.divide(scores, relax.const(np.float16(4))), mask)
    return op.reshape(op.permute_dims(op.matmul(nn.softmax(scores), value), (0, 2, 1, 3)), (2, 9, 32))


HEADS = ((2, 9, 32), (2, 9, 32), (2, 9, 32), (2, 1, 1, 9))


def test_attention_reads_and_writes_heads_in_place():
    step, program, _ = lowered(ATTENTION, heads, *HEADS, dtype="float16")
    args = step["args"]
    rows = ((2, 2, 9, 16), (288, 16, 32, 1))
    assert [seen(args[name]) for name in ("query", "value", "dst")] == [rows] * 3
    assert seen(args["key"]) == ((2, 2, 16, 9), (288, 16, 1, 32))
    assert args["mask"]["dims"] == [2, 1, 1, 9]
    assert step["attrs"] == {"algorithm": 0, "scale": 0.25}
    assert [args[name]["buffer"] for name in ("query", "key", "value", "mask")] == program["inputs"]


def test_the_operator_attention_is_a_whole_one():
    shapes = [(2, 9, 3, 16), (2, 7, 3, 16), (2, 7, 3, 16)]
    step, _, _ = lowered(ATTENTION, nn.attention, *shapes, dtype="float16")
    assert seen(step["args"]["query"]) == ((2, 3, 9, 16), (432, 16, 48, 1))
    assert seen(step["args"]["key"]) == ((2, 3, 16, 7), (336, 16, 1, 48))
    assert step["attrs"]["scale"] == 0.25


def test_scores_stay_wide_between_narrow_products():
    def body(q: Any, k: Any, v: Any) -> Any:
        scores = op.matmul(q, op.permute_dims(k, (0, 2, 1)), out_dtype="float32")
        weights = op.astype(nn.softmax(scores), "float16")
        return op.astype(op.matmul(weights, v, out_dtype="float32"), "float16")

    step, _, _ = lowered(ATTENTION, body, *[(6, 9, 16)] * 3, dtype="float16")
    assert step["args"]["query"]["dims"] == [1, 6, 9, 16]
    assert step["args"]["dst"]["dtype"] == "float16"


def test_each_engine_is_a_candidate_of_its_own():
    """0 conv2d, 1 add, 2 relu."""
    func = function(lambda x: nn.relu(op.add(conv(x), constant(4))), IMAGE)
    found = [(p.label, to_text(p.inside)) for p in proposals(CUDNN.rule(host_target()), func)]
    prefixes = ["{0}", "{0,1}", "{0..2}"]
    names = ("cudnn.engine", "cudnn.tf32_engine")
    assert found == [(f"{name}{k}", inside) for name in names for k in range(3) for inside in prefixes]


def test_attention_is_a_candidate_only_as_a_whole():
    found = proposals(CUDNN.rule(host_target()), function(heads, *HEADS, dtype="float16"))
    labels = {p.label for p in found}
    assert labels == {"cudnn.attention0", "cudnn.attention1"}
    assert "{0..11}" in {to_text(p.inside) for p in found}
    assert all(p.inside >> 9 & 1 for p in found)  # the product with the values


def test_ceil_mode_pads_behind_until_the_last_window_ends():
    step, _, _ = lowered(
        "cudnn.pooling",
        lambda x: nn.max_pool2d(x, (3, 3), (2, 2), (0, 0), ceil_mode=True, layout="NHWC"),
        (1, 8, 9, 4),
    )
    attrs = step["attrs"]
    assert (attrs["pooling"], attrs["padding_l"], attrs["padding_r"]) == ("max", [0, 0], [1, 0])


def test_a_global_average_is_a_pooling_over_everything():
    step, _, _ = lowered(
        "cudnn.pooling", lambda x: nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"), (1, 7, 5, 8)
    )
    assert (step["attrs"]["pooling"], step["attrs"]["kernel"]) == ("avg_include_padding", [7, 5])


def test_rows_are_normalized_as_channels():
    step, _, _ = lowered(
        "cudnn.layer_norm",
        lambda x: nn.layer_norm(x, constant(8), constant(8), axes=-1, epsilon=0.5),
        (2, 3, 8),
    )
    assert step["args"]["src"]["dims"] == [6, 8, 1, 1]
    assert step["args"]["scale"]["dims"] == [1, 8, 1, 1]
    assert step["attrs"] == {"epsilon": 0.5}


@pytest.mark.parametrize(
    ("label", "body", "shapes", "dtype", "reason"),
    [
        (CONVOLUTION, nn.relu, [IMAGE], "float32", "does not begin with relax.nn.relu"),
        (
            CONVOLUTION,
            lambda x: nn.conv2d(x, typed("int8", 4, 8, 3, 3)),
            [(1, 8, 5, 6)],
            "int8",
            "data is int8, cuDNN takes bfloat16 or float16 or float32",
        ),
        (CONVOLUTION, conv, [IMAGE, (3, 3, 8, 4)], "float32", "the weights are not constant"),
        (ATTENTION, op.matmul, [(2, 9, 16), (2, 16, 9)], "float32", "query is float32"),
        (ATTENTION, op.matmul, [(9,), (9, 16)], "float16", "query has 1 dims"),
        (
            ATTENTION,
            lambda x: op.matmul(x, typed("float16", 16, 9)),
            [(9, 16)],
            "float16",
            "a factor is constant",
        ),
        (
            ATTENTION,
            lambda q, k: nn.attention(q, k, k, causal_mask="TopLeft"),
            [(2, 9, 3, 16)] * 2,
            "float16",
            "a causal mask",
        ),
        (
            ATTENTION,
            lambda q, k: nn.attention(q, k, k, scale=float("inf")),
            [(2, 9, 3, 16)] * 2,
            "float16",
            "the factor of the scores is inf",
        ),
        (
            "cudnn.pooling",
            lambda x: nn.max_pool2d(x, (2, 2), dilation=(2, 2)),
            [(1, 8, 9, 9)],
            "float32",
            "have no gaps",
        ),
        (
            "cudnn.pooling",
            lambda x: nn.avg_pool2d(x, (2, 2), (3, 3), ceil_mode=True, count_include_pad=True),
            [(1, 3, 10, 10)],
            "float32",
            "beyond the padding",
        ),
        (
            "cudnn.layer_norm",
            lambda x: nn.layer_norm(x, constant(3), constant(3), axes=0),
            [(3, 4)],
            "float32",
            "not the last ones",
        ),
    ],
)
def test_reasons_of_anchors(label, body, shapes, dtype, reason):
    assert reason in cudnn.step(label, call(body, *shapes, dtype=dtype))


@pytest.mark.parametrize(
    ("body", "shapes", "reason"),
    [
        (lambda x: op.exp(conv(x)), [IMAGE], "cuDNN is given no function exp"),
        (lambda x: nn.softmax(conv(x)), [IMAGE], "no nn.softmax behind a convolution"),
        (lambda x: op.astype(conv(x), "float16"), [IMAGE], "behind a convolution of float32"),
        (
            lambda x, r: op.multiply(conv(x), r),
            [IMAGE, (1, 5, 6, 1)],
            "neither like the result nor one number for each channel",
        ),
        (lambda x, r: op.add(conv(x), r), [IMAGE, (2, 5, 6, 4)], "changes shape"),
    ],
)
def test_what_does_not_go_behind_a_convolution_has_a_reason(body, shapes, reason):
    assert reason in grown(CONVOLUTION, body, *shapes)


def scaled_late(q: Any, k: Any) -> Any:
    return op.multiply(nn.softmax(op.matmul(q, k)), relax.const(np.float16(2)))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (scaled_late, "the factor comes behind the mask or the softmax"),
        (lambda q, k: nn.softmax(op.matmul(q, k), axis=1), "the softmax is not over the keys"),
        (lambda q, k: op.matmul(op.matmul(q, k), q), "not of a softmax and values"),
        (lambda q, k: nn.relu(op.matmul(q, k)), "attention has no nn.relu there"),
        (
            lambda q, k: op.multiply(op.matmul(q, k), relax.const(np.float16(np.inf))),
            "the factor of the scores is inf, attention takes a finite float32",
        ),
    ],
)
def test_what_is_not_an_attention_has_a_reason(body, reason):
    assert reason in grown(ATTENTION, body, (2, 16, 16), (2, 16, 16), dtype="float16")


@pytest.mark.parametrize(
    ("size", "transposed", "reason"),
    [
        (20, True, "do not begin and end at multiples of 8 numbers"),
        (264, True, "have 264 numbers, the most are 256"),
        (16, False, "the numbers of a head of key are not neighbours"),
    ],
)
def test_heads_that_cudnn_cannot_read_are_partial(size, transposed, reason):
    def body(q: Any, k: Any, v: Any) -> Any:
        key = op.permute_dims(k, (0, 2, 1)) if transposed else k
        return op.matmul(nn.softmax(op.matmul(q, key)), v)

    keys = (2, 9, size) if transposed else (2, size, 9)
    with pytest.raises(NotLowerable, match=reason):
        lowered(ATTENTION, body, (2, 9, size), keys, (2, 9, size), dtype="float16")


def test_a_product_reads_its_operands_as_they_are():
    cast, convolution = bindings(lambda x: conv(op.astype(x, "float32")), IMAGE, dtype="float16")
    made = cudnn.absorbed_input(cudnn.step(CONVOLUTION, convolution.value), cast.var, cast.value)
    assert made == "a product reads its operands as they are"


def test_a_convolution_between_two_layouts_is_not_complete():
    made = cudnn.step(CONVOLUTION, call(lambda x: conv(x, out_layout="NCHW"), IMAGE))
    assert "not dense in one layout" in cudnn.why_partial(made)


def test_a_function_names_one_graph():
    with pytest.raises(NotLowerable, match="f: it has 0 composite functions"):
        cudnn.lower([function(conv, IMAGE, (3, 3, 8, 4))], ["f"])
