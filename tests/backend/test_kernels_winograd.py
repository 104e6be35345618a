"""Our Winograd kernels, with every instruction set of this machine, against a convolution written in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from native_program import Program, View, channels_last, create, random, run, seen_as
from test_native_convolution import convolve

from unity_collage import runtime

if reason := runtime.why_unavailable("kernels"):
    pytest.skip(reason, allow_module_level=True)

runtime.load("kernels")
ISAS = [str(isa) for isa in tvm_ffi.get_global_func("collage.kernels.isas")()]

SHAPES = {
    "whole tiles": ((1, 8, 8, 16), 32, (1, 1)),
    "cut tiles": ((1, 7, 7, 32), 16, (1, 1)),
    "one pixel": ((1, 1, 1, 5), 3, (1, 1)),
    "one channel": ((1, 6, 5, 1), 1, (1, 1)),
    "odd channels": ((1, 9, 6, 19), 37, (1, 1)),
    "few channels, many results": ((1, 5, 5, 3), 70, (1, 1)),
    "two images": ((2, 10, 13, 24), 40, (1, 1)),
    "no padding": ((1, 9, 11, 8), 8, (0, 0)),
    "wide padding": ((2, 4, 5, 8), 8, (2, 2)),
    "one-sided padding": ((1, 6, 7, 20), 12, (0, 2)),
    "blocks shared": ((1, 56, 56, 8), 16, (1, 1)),
    "phases shared": ((1, 7, 7, 128), 128, (1, 1)),
}
"""Images, output channels, padding before and after."""


def nhwc(view: View, array: np.ndarray) -> View:
    """The buffer of an array N, H, W, C with logical dims N, C, H, W."""
    n, h, w, c = array.shape
    dims = [n, c, h, w]
    return seen_as(view, dims, channels_last(dims))


def exact(x: np.ndarray, weights: np.ndarray, padding: tuple[int, int], stride: int = 1) -> np.ndarray:
    """Channels last, of weights O, I, taps, taps."""
    before, after = padding
    plain = convolve(
        np.moveaxis(x, -1, 1), weights, (stride, stride), (0, 0), (before, before), (after, after)
    )
    return np.moveaxis(plain, 1, -1)


def winograd(
    x: np.ndarray, weights: np.ndarray, out: np.ndarray, padding: tuple[int, int], *,
    bias: np.ndarray | None = None, post_ops: tuple[Any, ...] = (), **attrs: Any,
) -> np.ndarray:  # fmt: skip
    """A result shaped as ``out``; post-operations are (kind, algorithm, alpha, beta) or (algorithm, operand)."""
    program = Program()
    args = {"src": nhwc(program.input(*x.shape), x)}
    written, operands = [], []
    for post in post_ops:
        if isinstance(post[1], np.ndarray):
            view = nhwc(program.input(*post[1].shape), post[1])
            operands.append(post[1])
            written.append({"kind": "binary", "algorithm": post[0], "arg": view})
        else:
            written.append(
                dict(zip(("kind", "algorithm", "alpha", "beta"), ("eltwise", *post), strict=False))
            )
    args |= {"dst": nhwc(program.output(*out.shape), out), "weights": program.constant(weights)}
    if bias is not None:
        args["bias"] = program.constant(bias)
    program.step("winograd", args, written, padding_l=[padding[0]] * 2, **attrs)
    return run(program.create("kernels"), x, *operands, out=out.shape)


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    """Within 2e-5 of the largest number: a fifth of what a measured kernel may be off by."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


GROUPS = {
    "as many results": (7, 5, 4, 16, 16),
    "more results": (6, 6, 3, 16, 32),
    "fewer results": (6, 6, 3, 32, 16),
    "more groups than fit": (14, 14, 20, 16, 16),
    "many tiles": (40, 40, 5, 16, 16),
    "wide groups": (5, 5, 2, 96, 80),
}
"""Height, width, groups, channels and results of one."""


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("case", GROUPS)
def test_each_group_has_products_of_its_own(case: str, stride: int, tile: int, isa: str, threads: int):
    height, width, groups, channels, results = GROUPS[case]
    x = random(2, height, width, groups * channels)
    weights, bias = random(groups * results, channels, 3, 3, seed=1), random(groups * results, seed=2)
    parts = zip(np.split(x, groups, -1), np.split(weights, groups), strict=True)
    expected = np.concatenate([exact(image, filters, (1, 1), stride) for image, filters in parts], -1) + bias
    before = runtime.num_threads()
    runtime.set_num_threads(threads)
    try:
        attrs = {"tile": tile, "stride": stride, "isa": isa, "groups": groups}
        got = winograd(x, weights, expected, (1, 1), bias=bias, **attrs)
    finally:
        runtime.set_num_threads(before)
    assert_close(got, expected)


def test_groups_of_parts_of_vectors_are_refused():
    x, weights = random(1, 5, 5, 12), random(12, 6, 3, 3)
    with pytest.raises(ValueError, match="the groups do not have whole vectors of channels"):
        winograd(x, weights, x, (1, 1), tile=2, groups=2)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(("taps", "stride"), [(3, 1), (3, 2), (2, 1)])
@pytest.mark.parametrize("case", SHAPES)
def test_a_convolution_with_bias_agrees_with_numpy(case: str, taps: int, stride: int, tile: int, isa: str):
    shape, out_channels, padding = SHAPES[case]
    x, weights = random(*shape), random(out_channels, shape[-1], taps, taps, seed=1)
    bias = random(out_channels, seed=2)
    expected = exact(x, weights, padding, stride) + bias
    got = winograd(x, weights, expected, padding, bias=bias, tile=tile, isa=isa, stride=stride)
    assert_close(got, expected)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FUNCTIONS = {
    "relu": (("relu", 0.0, 0.0), lambda x: np.maximum(x, 0)),
    "leaky": (("relu", 0.1, 0.0), lambda x: np.where(x < 0, 0.1 * x, x)),
    "clip": (("clip", -1.0, 6.0), lambda x: np.clip(x, -1, 6)),
    "sigmoid": (("logistic", 0.0, 0.0), sigmoid),
    "swish": (("swish", 1.5, 0.0), lambda x: x * sigmoid(1.5 * x)),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_the_result(name: str, isa: str):
    post_op, function = FUNCTIONS[name]
    x, weights = random(1, 6, 7, 8), random(21, 8, 3, 3, seed=1)
    expected = function(exact(x, weights, (1, 1)))
    assert_close(winograd(x, weights, expected, (1, 1), post_ops=(post_op,), tile=4, isa=isa), expected)


@pytest.mark.parametrize("isa", ISAS)
def test_operands_and_functions_run_in_the_order_of_the_program(isa: str):
    x, weights, bias = random(2, 5, 6, 8), random(19, 8, 3, 3, seed=1), random(19, seed=2)
    plain = exact(x, weights, (1, 1)) + bias
    added, factor = random(*plain.shape, seed=3), random(*plain.shape, seed=4)
    expected = np.minimum(np.maximum(plain + added, 0) * factor, 6)
    post_ops = (("add", added), ("relu", 0.0, 0.0), ("mul", factor), ("clip", -1e9, 6.0))
    got = winograd(x, weights, expected, (1, 1), bias=bias, post_ops=post_ops, tile=4, isa=isa)
    assert_close(got, expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [1e4, 1e34])
def test_large_numbers_have_a_swish_of_themselves_or_zero(size: float, isa: str):
    x = np.full((1, 4, 4, 4), size, "float32")
    weights = np.zeros((2, 4, 3, 3), "float32")
    weights[0, :, 1, 1], weights[1, :, 1, 1] = 1, -1
    swish = (("swish", 1.0, 0.0),)
    got = winograd(x, weights, np.empty((1, 4, 4, 2)), (1, 1), post_ops=swish, tile=2, isa=isa)
    np.testing.assert_allclose(got[..., 0], 4 * size, rtol=1e-6)
    np.testing.assert_allclose(got[..., 1], 0, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", ["blocks shared", "phases shared"])
def test_any_number_of_threads_gives_the_same_numbers(case: str, threads: int):
    shape, out_channels, padding = SHAPES[case]
    x, weights = random(*shape), random(out_channels, shape[-1], 3, 3, seed=1)
    expected = exact(x, weights, padding)
    before = runtime.num_threads()
    runtime.set_num_threads(threads)
    try:
        assert_close(winograd(x, weights, expected, padding, tile=4), expected)
    finally:
        runtime.set_num_threads(before)


def test_steps_that_read_one_constant_in_several_ways_have_packed_weights_of_their_own():
    x, weights, program = random(1, 6, 6, 16), random(16, 16, 3, 3, seed=1) / 12, Program()
    constant, expected = program.constant(weights), x
    swapped = seen_as(constant, (16, 16, 3, 3), (9, 144, 3, 1))
    reads = [(constant, weights, 2), (constant, weights, 4), (swapped, weights.swapaxes(0, 1), 2)]
    views = [
        program.input(*x.shape),
        *(program.temporary(*x.shape) for _ in reads[1:]),
        program.output(*x.shape),
    ]
    for i, (view, filters, tile) in enumerate(reads):
        args = {"src": nhwc(views[i], x), "weights": view, "dst": nhwc(views[i + 1], x)}
        program.step("winograd", args, padding_l=[1, 1], tile=tile)
        expected = exact(expected, filters, (1, 1))
    assert_close(run(program.create("kernels"), x, out=x.shape), expected)


def test_a_saved_module_gives_the_same_numbers():
    x, weights = random(1, 6, 6, 8), random(8, 8, 3, 3, seed=1)
    program = Program()
    src, dst = program.input(1, 6, 6, 8), program.output(1, 6, 6, 8)
    args = {"src": nhwc(src, x), "weights": program.constant(weights), "dst": nhwc(dst, x)}
    module = program.step("winograd", args, padding_l=[1, 1], tile=2).create("kernels")
    loaded = tvm.ir.load_json(tvm.ir.save_json(module))
    np.testing.assert_array_equal(run(loaded, x, out=x.shape), run(module, x, out=x.shape))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"primitive": "fft"}, "the kernels have no primitive 'fft'"),
        ({"attrs": {"padding_l": [1, 1], "tile": 3}}, "there are no tiles of 3 for filters of 3x3"),
        ({"attrs": {"padding_l": [1, 1], "tile": 2, "stride": 3}}, "with a stride of 3"),
        ({"attrs": {"padding_l": [1, 1], "tile": 2, "isa": "mmx"}}, "does not run kernels for 'mmx'"),
        (
            {"attrs": {"padding_l": [1], "tile": 2}},
            "'padding_l' does not have a number for each of two or three axes",
        ),
        ({"post_ops": [{"kind": "eltwise", "algorithm": "elu"}]}, "the kernels have no post-op eltwise elu"),
        ({"post_ops": [{"kind": "eltwise", "algorithm": "relu"}] * 9}, "more than 8 post-ops"),
    ],
)
def test_what_the_kernel_refuses_is_said_when_the_module_is_made(change: dict[str, Any], reason: str):
    x, program = random(1, 6, 6, 8), Program()
    src, dst = program.input(1, 6, 6, 8), program.output(1, 6, 6, 8)
    weights = program.constant(random(8, 8, 3, 3))
    program.step("winograd", {"src": nhwc(src, x), "weights": weights, "dst": nhwc(dst, x)},
                 padding_l=[1, 1], tile=2)  # fmt: skip
    program.text["steps"][0] |= change
    with pytest.raises(Exception, match=reason) as error:
        create("kernels", {"programs": [program.text]}, program.blob)
    assert "main, step 0" in str(error.value)


def test_weights_that_are_not_a_constant_are_refused():
    x, program = random(1, 6, 6, 8), Program()
    src, weights, dst = program.input(1, 6, 6, 8), program.input(8, 8, 3, 3), program.output(1, 6, 6, 8)
    program.step("winograd", {"src": nhwc(src, x), "weights": weights, "dst": nhwc(dst, x)},
                 padding_l=[1, 1], tile=2)  # fmt: skip
    with pytest.raises(ValueError, match="'weights' is not a constant"):
        program.create("kernels")
