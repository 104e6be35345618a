"""Processors with shorter vectors and fewer registers get schedules of their own, which compute the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from schedule_checks import WIDE, check, floats, padded, scheduled, windows
from tvm.relax import op
from tvm.target import Target, codegen

from unity_collage.schedule import tiling
from unity_collage.schedule.cpu import CpuTraits

NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


def target_of(mcpu: str, triple: str = "x86_64-linux-gnu") -> Target:
    return Target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": 2})


@pytest.mark.parametrize(
    ("target", "nbytes", "registers"),
    [
        (WIDE, 64, 32),
        (target_of("skylake-avx512"), 64, 32),
        (target_of("x86-64-v3"), 32, 16),
        (target_of("sandybridge"), 32, 16),
        (target_of("x86-64"), 16, 16),
        (target_of("neoverse-n1", "aarch64-linux-gnu"), 16, 32),
    ],
)
def test_vectors_are_those_of_the_target(target: Target, nbytes: int, registers: int) -> None:
    cpu = CpuTraits.of(target)
    assert (cpu.vector_bytes, cpu.registers, cpu.cores) == (nbytes, registers, 2)


NARROW = [
    pytest.param(
        target_of(mcpu),
        id=mcpu,
        marks=pytest.mark.skipif(
            not codegen.target_has_features(
                feature, Target(f'{{"kind":"llvm","mcpu":"{codegen.llvm_get_system_cpu()}"}}')
            ),
            reason=f"this machine has no {feature}",
        ),
    )
    for mcpu, feature in (("x86-64", "sse2"), ("x86-64-v3", "avx2"))
]


@pytest.mark.parametrize("target", NARROW)
def test_numbers(target: Target) -> None:
    x, w, b = floats(37, 100), floats(100, 130), floats(130)
    check(
        lambda x, w, b: op.nn.relu(op.add(op.matmul(x, w), b)),
        lambda x, w, b: np.maximum(x @ w + b, 0),
        x, w, b, one_kernel=True, target=target,
    )  # fmt: skip
    check(lambda x: op.permute_dims(x, [1, 0]), np.transpose, floats(67, 130), target=target)
    check(lambda x: op.sum(x, axis=[1]), lambda x: x.sum(1), floats(9, 1000), target=target)
    check(op.exp, np.exp, floats(7, 133), target=target)
    check(
        lambda x: op.nn.softmax(x),
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
        floats(5, 300), target=target,
    )  # fmt: skip
    image, filters = floats(1, 9, 9, 20), floats(3, 3, 20, 33)
    check(
        lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), **NHWC),
        lambda x, w: np.einsum("nyxcab,abcf->nyxf", windows(padded(x, 1, (1, 2)), 3, 1, (1, 2)), w),
        image, filters, target=target,
    )  # fmt: skip


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "znver4"])
def test_sums_of_a_tile_are_small_enough_for_registers(mcpu: str) -> None:
    target = target_of(mcpu)
    text, cpu = scheduled(op.matmul, (197, 384), (384, 1536), target=target), CpuTraits.of(target)
    sizes = [int(size) for size in re.findall(r"acc\w* = T.sblock_alloc_buffer\(\((?:T.int64\()?(\d+)", text)]
    assert cpu.registers // 2 <= sum(sizes) // cpu.lanes("float32") < cpu.registers
    assert max(sizes) * 4 < tiling.STACK_BYTES
