"""Convolutions of volumes: each tap along the depth adds convolutions of images, of zeros where it is padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import backends_of, compiled
from lowered_function import bound, constant, function, nn, op
from native_program import Program, channels_last, random, run, seen_as
from test_kernels_backend import BOTH, annotated, assert_agrees, candidates
from test_kernels_winograd import ISAS, assert_close
from test_native_convolution import convolve
from tvm import relax
from tvm.ir import IRModule

from unity_collage.annotations import CANDIDATES, DECLINED
from unity_collage.testing.fixed_cost import FixedCost

VOLUME = (1, 4, 6, 7, 16)
OPTIONS: dict[str, Any] = {"padding": (1, 1, 1), "data_layout": "NDHWC", "kernel_layout": "DHWIO"}

CASES = {
    "same depth": ((1, 4, 6, 7, 16), (24, 3, 3, 3), (1, 1, 1), 1, 1),
    "two volumes": ((2, 5, 6, 6, 16), (16, 3, 3, 3), (1, 1, 1), 1, 1),
    "every other image": ((2, 5, 9, 6, 32), (16, 3, 3, 3), (1, 1, 1), 2, 2),
    "images by themselves": ((2, 3, 8, 8, 5), (7, 1, 3, 3), (0, 1, 1), 1, 1),
    "every third image": ((1, 7, 8, 8, 5), (7, 1, 3, 3), (0, 1, 1), 3, 1),
    "no padding, two taps": ((1, 3, 6, 6, 16), (16, 2, 3, 3), (0, 0, 0), 1, 1),
    "one image, mostly padding": ((1, 1, 6, 6, 16), (16, 3, 3, 3), (1, 1, 1), 1, 1),
    "filters of 2x2": ((1, 4, 6, 6, 16), (16, 2, 2, 2), (0, 1, 1), 1, 1),
    "phases shared": ((1, 2, 7, 7, 128), (128, 3, 3, 3), (1, 1, 1), 1, 1),
    "blocks shared": ((1, 8, 28, 28, 16), (16, 3, 3, 3), (1, 1, 1), 1, 1),
}
"""Shape of the volumes; results, taps; padding; stride along the depth, and of the images."""


def seen(view: Any, shape: tuple[int, ...]) -> Any:
    """The buffer of an array N, D, H, W, C with logical dims N, C, D, H, W."""
    n, *spatial, c = shape
    return seen_as(view, [n, c, *spatial], channels_last([n, c, *spatial]))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_a_volume_agrees_with_numpy(case: str, tile: int, isa: str):
    shape, (results, *taps), padding, depth_stride, stride = CASES[case]
    x, weights = random(*shape), random(results, shape[-1], *taps, seed=1)
    strides = (depth_stride, stride, stride)
    plain = convolve(np.moveaxis(x, -1, 1), weights, strides, (0, 0, 0), padding, padding)
    expected = np.moveaxis(plain, 1, -1)
    other, bias = random(*expected.shape, seed=2), random(results, seed=3)
    program = Program()
    args = {
        "src": seen(program.input(*shape), shape),
        "dst": seen(program.output(*expected.shape), expected.shape),
        "weights": program.constant(weights),
        "bias": program.constant(bias),
    }
    added = {
        "kind": "binary",
        "algorithm": "add",
        "arg": seen(program.input(*other.shape), other.shape),
    }
    attrs = {"tile": tile, "isa": isa, "stride": stride, "depth_stride": depth_stride}
    program.step("winograd", args, [added], padding_l=list(padding), **attrs)
    got = run(program.create("kernels"), x, other, out=expected.shape)
    assert_close(got, expected + bias + other)


def conv(x: relax.Expr, channels: int = 16, results: int = 16, **options: Any) -> relax.Call:
    return nn.conv3d(x, constant(3, 3, 3, channels, results), **(OPTIONS | options))


def joined_conv(x: relax.Expr) -> Any:
    return conv(bound(op.concat((x, bound(nn.relu(x))), axis=-1)), channels=32)


@pytest.mark.parametrize(
    ("body", "operators"),
    [
        (conv, 1),
        (lambda x: nn.relu(op.add(op.sigmoid(x), op.add(conv(x), constant(16)))), 4),
        (lambda x: nn.relu(op.add(conv(x, strides=(2, 2, 2)), constant(1, 1, 1, 1, 16))), 3),
        (lambda x: nn.conv3d(x, constant(16, 16, 2, 3, 3), data_layout="NDHWC", kernel_layout="OIDHW"), 1),
        (lambda x: op.concat((bound(nn.relu(bound(conv(x)))), x), axis=-1), 3),
        (joined_conv, 2),
    ],
)
def test_volumes_are_candidates_with_what_stands_around(body: Callable[..., Any], operators: int):
    func = function(body, VOLUME)
    assert candidates(func) == dict.fromkeys(BOTH, operators)
    for label in BOTH:
        cost = {f"kernels:{label}": 1e-6, "kernels": 1e-3, "tvm": 1e-4}
        program = compiled(IRModule({"main": func}), ("kernels",), FixedCost(cost))
        assert "kernels" in backends_of(program)
        assert_agrees(func, program)


@pytest.mark.parametrize(
    ("body", "shape", "reason"),
    [
        (lambda x: conv(x, channels=8), (1, 4, 6, 7, 8), "a volume has 8 channels, which is not a multiple of 16"),
        (lambda x: conv(x, channels=16, results=32, groups=2), (1, 4, 6, 7, 32), "filters of volumes are of several"),
        (lambda x: conv(x, dilation=(2, 1, 1)), VOLUME, "the filters are dilated"),
        (lambda x: nn.conv3d(x, constant(9, 3, 3, 16, 16), **OPTIONS | {"padding": (4, 1, 1)}), VOLUME, "are 9 deep"),
        (lambda x: nn.conv3d(x, constant(3, 1, 1, 16, 16), **OPTIONS), VOLUME, "the filters are 1x1"),
        (lambda x: conv(x, strides=(1, 1, 2)), VOLUME, "the strides are 1 and 2"),
    ],
)  # fmt: skip
def test_volumes_that_are_none_of_ours(body: Callable[..., Any], shape: Any, reason: str):
    func = function(body, shape)
    found = annotated(func)
    assert not [c for c in CANDIDATES.read(found) if c.backend == "kernels"]
    assert any(reason in refusal.reason for refusal in DECLINED.read(found) if refusal.backend == "kernels")


def test_fields_of_parts_of_vectors_are_refused_under_filters_with_depth():
    program = Program()
    shapes = {"src": (1, 2, 5, 5, 2), "src1": (1, 2, 5, 5, 14)}
    args = {name: seen(program.input(*shape), shape) for name, shape in shapes.items()}
    args |= {"dst": seen(program.output(1, 2, 5, 5, 16), (1, 2, 5, 5, 16))}
    args |= {"weights": program.constant(random(16, 16, 3, 3, 3))}
    program.step("winograd", args, [], padding_l=[1, 1, 1], tile=2)
    with pytest.raises(ValueError, match="does not have whole vectors of channels"):
        program.create("kernels")
