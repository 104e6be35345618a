"""The memory of a plan as data, in words, and in reports."""

from __future__ import annotations

import json

import pytest

from unity_collage.plan.encoding import decode, encode
from unity_collage.plan.memory import MemorySpace, PlanMemory, in_pages
from unity_collage.plan.plan import Plan
from unity_collage.report.words import memory_text

CPU = MemorySpace("llvm:0", "global", live=(8192, 4096), scratch=(0, 6000), weights=1000, held=12288)


@pytest.mark.parametrize(("nbytes", "pages"), [(0, 0), (1, 4096), (4096, 4096), (4097, 8192)])
def test_memory_is_taken_in_pages(nbytes: int, pages: int) -> None:
    assert in_pages(nbytes) == pages


def test_the_peak_is_of_weights_values_and_temporaries_together() -> None:
    memory = PlanMemory(("conv", "softmax"), (CPU,))
    assert CPU.curve == (9192, 11096)
    assert (memory.peak, memory.at) == (11096, "softmax")
    assert memory_text(memory) == (
        "peak memory 11.1 kB at softmax (weights 1.00 kB, values 4.10 kB, temporaries 6.00 kB)"
    )


def test_each_device_and_scope_has_a_peak() -> None:
    gpu = MemorySpace("cuda:0", "global", live=(0, 20480))
    memory = PlanMemory(("conv", "softmax"), (CPU, gpu), unknown=1)
    assert memory.largest is gpu
    assert memory_text(memory) == (
        "peak memory 20.5 kB on cuda:0 at softmax (values 20.5 kB); llvm:0 global 11.1 kB; "
        "1 value of unknown size not counted"
    )


def test_runtimes_with_memory_of_their_own_are_named() -> None:
    memory = PlanMemory(("onnxruntime_main", "softmax"), (CPU,), runtimes=("ONNX Runtime", "OpenVINO"))
    assert memory_text(memory).endswith("; the memory of ONNX Runtime and OpenVINO not counted")


def test_a_plan_keeps_its_memory_as_text() -> None:
    plan = Plan(memory=PlanMemory(("conv", "softmax"), (CPU,)))
    assert decode(Plan, json.loads(json.dumps(encode(plan)))) == plan
    assert PlanMemory().peak == 0 and PlanMemory().at == ""
