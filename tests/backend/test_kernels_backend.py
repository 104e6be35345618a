"""Our kernels as a backend: which convolutions are candidates, what goes behind them, and whole programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import arrays, backends_of, compiled
from lowered_function import constant, function, inputs_of, nn, op
from tvm import relax
from tvm.ir import IRModule

from unity_collage import reference, runtime
from unity_collage.annotations import CANDIDATES, DECLINED
from unity_collage.backends.kernels import lower
from unity_collage.backends.native.lowering import NotLowerable
from unity_collage.passes.annotate_candidates import AnnotateCandidates
from unity_collage.passes.prepare import Prepare
from unity_collage.program import Program
from unity_collage.target import host_target
from unity_collage.testing.fixed_cost import FixedCost

if reason := runtime.why_unavailable("kernels"):
    pytest.skip(reason, allow_module_level=True)

IMAGE = (1, 6, 7, 8)
OPTIONS: dict[str, Any] = {"padding": (1, 1), "data_layout": "NHWC", "kernel_layout": "HWIO"}


def conv(x: relax.Expr, **options: Any) -> relax.Call:
    return nn.conv2d(x, constant(3, 3, 8, 8), **(OPTIONS | options))


def annotated(func: relax.Function) -> relax.Function:
    with host_target():
        return AnnotateCandidates(("kernels",))(Prepare()(IRModule({"main": func})))["main"]


def candidates(func: relax.Function) -> dict[str, int]:
    """How many operators the largest candidate of each algorithm covers."""
    largest: dict[str, int] = {}
    for candidate in CANDIDATES.read(annotated(func)):
        if candidate.backend == "kernels":
            ((label, covered),) = candidate.composites
            largest[label] = max(largest.get(label, 0), len(covered))
    return largest


def assert_agrees(func: relax.Function, program: Program) -> None:
    inputs = inputs_of(func)
    (expected,) = reference.run(func, inputs)
    np.testing.assert_allclose(arrays(program(*inputs)), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


UNPADDED = {**OPTIONS, "padding": (0, 0)}
BOTH = ("kernels.winograd4", "kernels.winograd2")


@pytest.mark.parametrize(
    ("body", "operators"),
    [
        (conv, 1),
        (lambda x: nn.relu(op.add(conv(x), constant(1, 1, 1, 8))), 3),
        (lambda x: nn.relu(op.add(op.sigmoid(x), op.add(conv(x), constant(8)))), 4),
        (lambda x: op.add(op.clip(conv(x), 0, 6), x), 3),
        (lambda x: op.clip(op.multiply(nn.silu(conv(x)), x), -1, float("inf")), 4),
        (lambda x: nn.leakyrelu(op.sigmoid(conv(x)), 0.2), 3),
        (lambda x: nn.conv2d(x, constant(8, 3, 3, 8), data_layout="NHWC", kernel_layout="OHWI"), 1),
        (lambda x: op.reshape(nn.relu(conv(op.reshape(x, (1, 7, 6, 8)))), (42, 8)), 4),
        (lambda x: nn.relu(op.add(conv(x, strides=(2, 2)), constant(8))), 3),
        (lambda x: nn.relu(nn.conv2d(x, constant(2, 2, 8, 8), **UNPADDED)), 2),
        (lambda x: nn.conv2d(x, constant(2, 2, 8, 8), **{**UNPADDED, "padding": (1, 0, 0, 1)}), 1),
    ],
)  # fmt: skip
def test_each_tile_is_a_candidate_with_what_stands_behind(body: Callable[..., Any], operators: int):
    func = function(body, IMAGE)
    assert candidates(func) == dict.fromkeys(BOTH, operators)
    for label in BOTH:
        cost = {f"kernels:{label}": 1e-6, "kernels": 1e-3, "tvm": 1e-2}
        program = compiled(IRModule({"main": func}), ("kernels",), FixedCost(cost))
        (kernel,) = [k for k in program.plan["main"].kernels if k.backend == "kernels"]
        assert kernel.label == label
        assert_agrees(func, program)


@pytest.mark.parametrize(("low", "high"), [(-1.0, np.inf), (-np.inf, 1.0)])
def test_a_clip_with_one_bound_keeps_infinity_on_the_other_side(low: float, high: float):
    func = function(lambda x, y: op.clip(op.add(conv(x), y), low, high), IMAGE, IMAGE)
    program = compiled(IRModule({"main": func}), ("kernels",), FixedCost({"kernels": 1e-6, "tvm": 1e-2}))
    assert backends_of(program) == {"kernels"}
    image, added = inputs_of(func)
    added[0, 0, 0, :2] = np.inf, -np.inf
    assert list(arrays(program(image, added))[0, 0, 0, :2]) == [high, low]


@pytest.mark.parametrize(
    ("body", "shape", "reason"),
    [
        (lambda x: conv(x, strides=(3, 3)), IMAGE, "the strides are 3 and 3, the kernel has 1 or 2 for both"),
        (lambda x: conv(x, strides=(1, 2)), IMAGE, "the strides are 1 and 2"),
        (
            lambda x: nn.conv2d(x, constant(2, 2, 8, 8), strides=(2, 2), **UNPADDED),
            IMAGE,
            "the filters are 2x2, the kernel's are 3x3",
        ),
        (
            lambda x: nn.conv2d(x, constant(3, 3, 16, 64), strides=(2, 2), groups=2, **OPTIONS),
            (1, 6, 7, 32),
            "the filters of several groups have a stride",
        ),
        (lambda x: conv(x, dilation=(1, 2)), IMAGE, "the filters are dilated"),
        (
            lambda x: nn.conv2d(x, constant(3, 3, 4, 8), groups=2, **OPTIONS),
            IMAGE,
            "a group has 4 results of 4 channels, which are not multiples of 16",
        ),
        (lambda x: nn.conv2d(x, constant(3, 5, 8, 8), **OPTIONS), IMAGE, "the filters are 3x5"),
        (lambda x: nn.conv2d(x, constant(8, 8, 3, 3)), (1, 8, 6, 7), "not dense with channels innermost"),
        (
            lambda w: nn.conv2d(constant(1, 6, 7, 8), w, **OPTIONS),
            (3, 3, 8, 8),
            "the weights are not constant",
        ),
    ],
)
def test_a_convolution_that_is_none_of_ours(body: Callable[..., Any], shape: Any, reason: str):
    func = function(body, shape)
    assert candidates(func) == {}
    assert any(reason in refusal.reason for refusal in DECLINED.read(annotated(func)))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x: nn.gelu(conv(x)), "the kernels do not apply nn.gelu"),
        (lambda x: op.add(nn.relu(conv(x)), constant(8)), "nor a bias right behind"),
        (lambda x: op.multiply(conv(x), constant(1, 6, 1, 1)), "nor a bias right behind"),
        (lambda x: op.add(conv(x), constant(2, 6, 7, 8)), "changes shape or dtype"),
    ],
)
def test_what_cannot_stand_behind(body: Callable[..., Any], reason: str):
    func = function(body, IMAGE)
    assert set(candidates(func).values()) <= {1, 2}
    assert any(reason in refusal.reason for refusal in DECLINED.read(annotated(func)))


def grouped(x: relax.Expr, group: int, **options: Any) -> relax.Call:
    channels = int(x.ty.shape.values[-1])
    return nn.conv2d(x, constant(3, 3, group, channels), groups=channels // group, **(OPTIONS | options))


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("group", [2, 4, 8, 16])
def test_a_grouped_convolution_is_a_candidate_with_what_stands_behind(group: int, strides: Any):
    func = function(
        lambda x: nn.relu(op.add(grouped(x, group, strides=strides), constant(32))), (1, 9, 8, 32)
    )
    labels = ["kernels.grouped", *(BOTH if group == 16 and strides == (1, 1) else ())]
    assert candidates(func) == dict.fromkeys(labels, 3)
    for label in labels:
        costs = FixedCost({f"kernels:{label}": 1e-6, "kernels": 1e-3, "tvm": 1e-2})
        program = compiled(IRModule({"main": func}), ("kernels",), costs)
        assert [k.label for k in program.plan["main"].kernels] == [label]
        assert_agrees(func, program)


@pytest.mark.parametrize(
    ("body", "channels", "reason"),
    [
        (lambda x: grouped(x, 4, strides=(1, 2)), 32, "the strides are 1 and 2"),
        (lambda x: grouped(x, 4, strides=(3, 3)), 32, "the strides are 3 and 3"),
        (lambda x: grouped(x, 4), 24, "24 results of 24 channels: both numbers must be one multiple of 16"),
        (lambda x: grouped(x, 12), 48, "a group has 12 channels"),
        (lambda x: nn.conv2d(x, constant(3, 3, 8, 32), groups=2, **OPTIONS), 16, "32 results of 16 channels"),
    ],
)  # fmt: skip
def test_groups_that_are_none_of_ours(body: Callable[..., Any], channels: int, reason: str):
    func = function(body, (1, 6, 7, channels))
    assert candidates(func) == {}
    assert any(reason in refusal.reason for refusal in DECLINED.read(annotated(func)))


def test_without_the_backend_there_is_no_winograd():
    program = compiled(IRModule({"main": function(conv, IMAGE)}), ("tvm",))
    assert backends_of(program) == {"tvm"}


def test_a_function_must_name_its_algorithm():
    with pytest.raises(NotLowerable, match="main: it has 0 composite functions with a label of"):
        lower([function(conv, IMAGE)], ["main"])


def test_kernels_of_several_algorithms_run_in_one_call():
    func = function(chained, (1, 6, 7, 16))
    cost = {"kernels:kernels.winograd2": 1.5e-6, "kernels": 1e-6, "tvm": 1e-2}
    program = compiled(IRModule({"main": func}), ("kernels",), FixedCost(cost))
    (kernel,) = program.plan["main"].kernels
    assert kernel.backend == "kernels" and kernel.label.count("conv2d") == 3
    assert_agrees(func, program)


def chained(x: relax.Expr) -> relax.Expr:
    """Three convolutions, of which the second one has groups."""
    first = nn.relu(nn.conv2d(x, constant(3, 3, 16, 16), **OPTIONS))
    second = nn.conv2d(first, constant(3, 3, 2, 16), groups=8, **OPTIONS)
    return nn.conv2d(second, constant(3, 3, 16, 16), **OPTIONS)
