"""Our grouped convolutions, with every instruction set of this machine, against a convolution written in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_program import Program, random, run
from test_kernels_winograd import ISAS, assert_close, nhwc
from test_native_convolution import convolve


def exact(x: np.ndarray, weights: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """Channels last, of weights O, I of a group, 3, 3."""
    groups = x.shape[-1] // weights.shape[1]
    sides = (padding, padding)
    first = np.moveaxis(x, -1, 1)
    return np.moveaxis(convolve(first, weights, (stride, stride), (0, 0), sides, sides, groups), 1, -1)


def grouped(
    x: np.ndarray, weights: np.ndarray, out: np.ndarray, added: np.ndarray | None = None, **attrs: Any
) -> np.ndarray:
    """relu(convolution + bias) + added, shaped as ``out``; the bias is 0, 1, ..."""
    program = Program()
    inputs = [x] if added is None else [x, added]
    views = [nhwc(program.input(*array.shape), array) for array in inputs]
    post_ops: list[dict[str, Any]] = [{"kind": "eltwise", "algorithm": "relu"}]
    if added is not None:
        post_ops.append({"kind": "binary", "algorithm": "add", "arg": views[1]})
    args = {
        "src": views[0],
        "dst": nhwc(program.output(*out.shape), out),
        "weights": program.constant(weights),
        "bias": program.constant(np.arange(weights.shape[0], dtype="float32")),
    }
    program.step("grouped", args, post_ops, **attrs)
    return run(program.create("kernels"), *inputs, out=out.shape)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("group", [2, 4, 8, 16, 48])
def test_groups_agree_with_numpy(group: int, stride: int, isa: str):
    channels = 48 if group == 48 else 32
    x, weights = random(2, 5, 17, channels), random(channels, group, 3, 3, seed=1)
    plain = np.maximum(exact(x, weights, stride, 1) + np.arange(channels), 0)
    added = random(*plain.shape, seed=2)
    got = grouped(x, weights, plain, added, padding_l=[1, 1], stride=stride, isa=isa)
    assert_close(got, plain + added)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("shape", "padding"), [((1, 3, 3, 16), 0), ((1, 1, 1, 16), 1), ((1, 20, 30, 64), 2), ((1, 56, 56, 16), 1)]
)
def test_any_size_of_image_agrees_with_numpy(shape: tuple[int, ...], padding: int, isa: str):
    x, weights = random(*shape), random(shape[-1], 4, 3, 3, seed=1)
    expected = np.maximum(exact(x, weights, 1, padding) + np.arange(shape[-1]), 0)
    assert_close(grouped(x, weights, expected, padding_l=[padding] * 2, stride=1, isa=isa), expected)


@pytest.mark.parametrize(
    ("channels", "group", "stride", "reason"),
    [
        (24, 4, 1, "in vectors of 16"),
        (48, 12, 1, "there are groups of 2, 4, 8 and multiples of 16 channels, not of 12"),
        (16, 4, 3, "the stride is 1 or 2, not 3"),
    ],
)
def test_what_the_kernel_refuses_is_said_when_the_module_is_made(
    channels: int, group: int, stride: int, reason: str
):
    x, weights = random(1, 6, 6, channels), random(channels, group, 3, 3)
    with pytest.raises(ValueError, match=reason):
        grouped(x, weights, np.empty((1, 6, 6, channels)), padding_l=[1, 1], stride=stride)
