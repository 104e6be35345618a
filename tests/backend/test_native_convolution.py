"""Convolutions of the oneDNN executor against a convolution written in numpy."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from native_program import Program, View, channels_last, random, row_major, run, seen_as

from unity_collage import runtime

pytestmark = pytest.mark.skipif(
    runtime.why_unavailable("onednn") is not None, reason=str(runtime.why_unavailable("onednn"))
)

RELU = {"kind": "eltwise", "algorithm": "relu", "alpha": 0.0, "beta": 0.0}


def convolve(
    x: np.ndarray, w: np.ndarray, strides: Sequence[int], dilates: Sequence[int], before: Sequence[int],
    after: Sequence[int], groups: int = 1,
) -> np.ndarray:  # fmt: skip
    """Convolution of N,C,spatial... with O,C/groups,kernel...; ``dilates`` counts from zero as oneDNN does."""
    kernel, steps = w.shape[2:], [dilate + 1 for dilate in dilates]
    padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    out = [
        (padded.shape[i + 2] - (kernel[i] - 1) * steps[i] - 1) // strides[i] + 1 for i in range(len(kernel))
    ]
    result = np.zeros((x.shape[0], w.shape[0], *out), "float64")
    inputs, outputs = x.shape[1] // groups, w.shape[0] // groups
    for at in itertools.product(*(range(size) for size in kernel)):
        window = [
            slice(at[i] * steps[i], at[i] * steps[i] + (out[i] - 1) * strides[i] + 1, strides[i])
            for i in range(len(kernel))
        ]
        part = padded[(slice(None), slice(None), *window)]
        for g in range(groups):
            o, c = slice(g * outputs, (g + 1) * outputs), slice(g * inputs, (g + 1) * inputs)
            result[:, o] += np.einsum("nc...,oc->no...", part[:, c], w[(o, slice(None), *at)])
    return result


def to_channels_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 1, -1)


def nhwc(view: View, dims: Sequence[int]) -> View:
    """A buffer of shape N, spatial..., C seen with the logical dims N, C, spatial..."""
    return seen_as(view, dims, channels_last(dims))


def grouped(view: View, groups: int) -> View:
    """Weights O,C/G,kernel... seen as G,O/G,C/G,kernel..."""
    dims = [groups, view["dims"][0] // groups, *view["dims"][1:]]
    return seen_as(view, dims, row_major(dims))


CASES = {
    "3x3": ((2, 16, 9, 7), (24, 16, 3, 3), {"pad": ((1, 1), (1, 1))}),
    "1x1": ((1, 16, 5, 5), (8, 16, 1, 1), {}),
    "odd channels": ((1, 3, 8, 8), (5, 3, 3, 3), {"pad": ((1, 1), (1, 1))}),
    "strided, asymmetric padding": (
        (1, 8, 10, 10),
        (16, 8, 3, 3),
        {"strides": (2, 2), "pad": ((0, 0), (1, 1))},
    ),
    "dilated": ((1, 8, 12, 12), (8, 8, 3, 3), {"dilates": (1, 2), "pad": ((2, 3), (2, 3))}),
    "depthwise": ((1, 32, 8, 8), (32, 1, 3, 3), {"groups": 32, "pad": ((1, 1), (1, 1))}),
    "grouped": ((1, 32, 6, 6), (32, 8, 3, 3), {"groups": 4, "pad": ((1, 1), (1, 1))}),
    "one-dimensional": ((1, 8, 20), (16, 8, 5), {"strides": (2,), "pad": ((2,), (2,))}),
    "three-dimensional": ((1, 4, 5, 6, 7), (8, 4, 2, 3, 3), {"pad": ((0, 1, 1), (1, 1, 1))}),
}


@pytest.mark.parametrize("layout", ["channels first", "channels last"])
@pytest.mark.parametrize("case", CASES)
def test_convolution_agrees_with_numpy(case: str, layout: str):
    x_shape, w_shape, options = CASES[case]
    spatial = len(x_shape) - 2
    strides, dilates = options.get("strides", (1,) * spatial), options.get("dilates", (0,) * spatial)
    before, after = options.get("pad", ((0,) * spatial, (0,) * spatial))
    groups = options.get("groups", 1)
    x, w, b = random(*x_shape), random(*w_shape, seed=1), random(w_shape[0], seed=2)
    expected = convolve(x, w, strides, dilates, before, after, groups)
    expected += b.reshape(-1, *(1,) * spatial)
    last = layout == "channels last"
    if last:
        x, shape = to_channels_last(x), to_channels_last(expected).shape
    else:
        shape = expected.shape

    program = Program()
    src, dst = program.input(*x.shape), program.output(*shape)
    weights = program.constant(w)
    args = {
        "src": nhwc(src, x_shape) if last else src,
        "weights": grouped(weights, groups) if groups > 1 else weights,
        "bias": program.constant(b),
        "dst": nhwc(dst, expected.shape) if last else dst,
    }
    program.step(
        "convolution", args, strides=list(strides), dilates=list(dilates), padding_l=list(before),
        padding_r=list(after),
    )  # fmt: skip
    result = run(program.create("onednn"), x, out=shape)
    np.testing.assert_allclose(result, to_channels_last(expected) if last else expected, rtol=1e-4, atol=1e-4)


WINDOW = {"strides": [1, 1], "dilates": [0, 0], "padding_l": [1, 1], "padding_r": [1, 1]}


def test_post_ops_run_in_the_order_of_the_program():
    dims = [1, 8, 6, 6]
    x, residual = random(1, 6, 6, 8), random(1, 6, 6, 8, seed=1)
    w, b, scale = random(8, 8, 3, 3, seed=2), random(8, seed=3), random(8, seed=4)
    program = Program()
    src, other, dst = program.input(1, 6, 6, 8), program.input(1, 6, 6, 8), program.output(1, 6, 6, 8)
    per_channel = seen_as(program.constant(scale), [1, 8, 1, 1], [8, 1, 1, 1])
    post_ops = [
        {"kind": "binary", "algorithm": "mul", "arg": per_channel},
        {"kind": "binary", "algorithm": "add", "arg": nhwc(other, dims)},
        RELU,
    ]
    args = {
        "src": nhwc(src, dims), "weights": program.constant(w), "bias": program.constant(b), "dst": nhwc(dst, dims),
    }  # fmt: skip
    program.step("convolution", args, post_ops, **WINDOW)
    plain = convolve(np.moveaxis(x, -1, 1), w, (1, 1), (0, 0), (1, 1), (1, 1))
    expected = np.maximum(to_channels_last(plain + b.reshape(-1, 1, 1)) * scale + residual, 0)
    result = run(program.create("onednn"), x, residual, out=(1, 6, 6, 8))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_sum_adds_to_what_the_result_holds():
    dims = [1, 8, 6, 6]
    x, residual, w = random(1, 6, 6, 8), random(1, 6, 6, 8, seed=1), random(8, 8, 3, 3, seed=2)
    program = Program()
    src, other, dst = program.input(1, 6, 6, 8), program.input(1, 6, 6, 8), program.output(1, 6, 6, 8)
    program.step("reorder", {"src": other, "dst": dst})
    args = {"src": nhwc(src, dims), "weights": program.constant(w), "dst": nhwc(dst, dims)}
    program.step("convolution", args, [{"kind": "sum", "scale": 1.0}, RELU], **WINDOW)
    plain = convolve(np.moveaxis(x, -1, 1), w, (1, 1), (0, 0), (1, 1), (1, 1))
    result = run(program.create("onednn"), x, residual, out=(1, 6, 6, 8))
    np.testing.assert_allclose(
        result, np.maximum(to_channels_last(plain) + residual, 0), rtol=1e-4, atol=1e-4
    )


def test_weights_may_be_an_input():
    x, w = random(1, 8, 6, 6), random(8, 8, 3, 3, seed=2)
    program = Program()
    args = {"src": program.input(1, 8, 6, 6), "weights": program.input(8, 8, 3, 3)}
    program.step("convolution", args | {"dst": program.output(1, 8, 6, 6)}, **WINDOW)
    result = run(program.create("onednn"), x, w, out=(1, 8, 6, 6))
    np.testing.assert_allclose(result, convolve(x, w, (1, 1), (0, 0), (1, 1), (1, 1)), rtol=1e-4, atol=1e-4)


def test_deconvolution_scatters_each_input_element():
    x, w = random(1, 4, 3, 3), random(6, 4, 2, 2, seed=1)
    program = Program()
    args = {
        "src": program.input(1, 4, 3, 3),
        "weights": program.constant(w),
        "dst": program.output(1, 6, 6, 6),
    }
    window = {"strides": [2, 2], "dilates": [0, 0], "padding_l": [0, 0], "padding_r": [0, 0]}
    program.step("deconvolution", args, **window)
    expected = np.einsum("nchw,ocij->nohiwj", x, w).reshape(1, 6, 6, 6)
    np.testing.assert_allclose(
        run(program.create("onednn"), x, out=(1, 6, 6, 6)), expected, rtol=1e-4, atol=1e-4
    )
