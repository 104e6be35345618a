"""The device in numbers, what kernels on it cost at least, and what a cost holds for; without a device."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tvm.script import relax as R

from unity_collage.annotations import LIFTED, PARTS
from unity_collage.cost import fingerprint
from unity_collage.cost.fingerprint import cost_fingerprint
from unity_collage.cost.method import METHOD_VERSION, Method
from unity_collage.cost.model import Capability, Workload
from unity_collage.machine import device as device_module
from unity_collage.machine.device import ClockWatch, Device
from unity_collage.machine.fingerprint import fields_of
from unity_collage.measure.cuda import cost
from unity_collage.measure.cuda.cost import CudaCost
from unity_collage.runtime import cuda
from unity_collage.schedule.gpu import GPU_SCHEDULE_VERSION
from unity_collage.target import host_target, target_of
from unity_collage.testing.conformance.cases import Body, function

MIB = 1 << 20
H100 = Device("NVIDIA H100", (9, 0), 132, 1.98e9, 50 * MIB)
FASTER = 1.1
"""The highest possible clock, as a multiple of the reported one."""


# The device


@pytest.mark.parametrize(
    ("capability", "multiply_adds"), [((9, 0), 128), ((8, 0), 64), ((8, 9), 128), ((10, 0), 256)]
)
def test_a_multiply_add_is_two_operations(capability: tuple[int, int], multiply_adds: int) -> None:
    device = Device("GPU", capability, 10, 1e9, 0)
    assert device.compute_seconds(2 * multiply_adds * 10 * 1e9 * FASTER) == pytest.approx(1.0)
    assert device.compute_seconds(0) == 0


def test_an_unknown_device_is_as_fast_as_any() -> None:
    unknown = Device("GPU", (99, 0), 132, 1.98e9, 0)
    known = [Device("GPU", capability, 132, 1.98e9, 0) for capability in device_module._MULTIPLY_ADDS]
    assert unknown.compute_seconds(1e9) <= min(d.compute_seconds(1e9) for d in known)


def test_memory_is_as_fast_as_the_second_level() -> None:
    assert H100.memory_seconds(128 * 132) == pytest.approx(1 / (1.98e9 * FASTER))
    assert str(H100) == "NVIDIA H100, 132 multiprocessors, L2 50 MiB"


def reasons(*told: int, status: int = 0) -> Callable[[str], Any]:
    """NVML, which gives these reasons for the clock, one at each call."""
    left = list(told)

    def ask(_handle: Any, found: Any) -> int:
        found._obj.value = left.pop(0)
        return status

    return lambda _name: ask


@pytest.mark.parametrize(
    ("told", "slowed"),
    [((0, 0), False), ((0x1, 0x1), False), ((0, 0x4), False), ((0, 0x8), True), ((0x20, 0), True),
     ((0, 0x40), True), ((0, 0x80 | 0x1), True)],
)  # fmt: skip
def test_a_clock_that_was_held_back_is_noticed(
    told: tuple[int, int], slowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "_handle", ctypes.c_void_p)
    monkeypatch.setattr(device_module, "_management", reasons(*told))
    assert ClockWatch().was_slowed() is slowed


def test_without_nvml_nothing_is_known_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "_management", lambda _: None)
    monkeypatch.setattr(device_module, "_handle", lambda: None)
    assert not ClockWatch().was_slowed() and device_module.driver_version.__wrapped__() == ""
    monkeypatch.setattr(device_module, "_handle", ctypes.c_void_p)
    monkeypatch.setattr(device_module, "_management", reasons(0x8, 0x8, status=1))
    assert not ClockWatch().was_slowed()


def test_what_the_runtime_does_not_tell_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    told: Any = SimpleNamespace(
        cudaDeviceGetAttribute=lambda _found, number, _device: number,
        cudaGetLastError=lambda: 0,
        cudaGetErrorName=lambda status: f"error {status}".encode(),
        cudaGetErrorString=lambda _: b"no such attribute",
    )
    monkeypatch.setattr(cuda, "_runtime", lambda: told)
    with pytest.raises(RuntimeError, match="cudaDeviceGetAttribute failed: error 16: no such attribute"):
        cuda.attribute(16)


# Costs


@pytest.fixture
def on_h100(monkeypatch: pytest.MonkeyPatch) -> CudaCost:
    monkeypatch.setattr(cost, "device", lambda: H100)
    return CudaCost()


def bound(model: CudaCost, body: Body, *shapes: tuple[int, ...], dtype: str = "float32") -> float:
    func = function(body, shapes, dtype).with_attr(LIFTED, 0)
    (seconds,) = model.lower_bounds([Workload("digest", "cublas", "matmul", func, 0)]).values()
    return seconds


def test_a_product_takes_its_arithmetic(on_h100: CudaCost) -> None:
    square, flops = (2048, 2048), 2 * 2048**3
    wide = bound(on_h100, R.matmul, square, square)
    assert wide == H100.compute_seconds(flops)
    rounded = function(R.matmul, (square, square), "float32").with_attrs(
        {LIFTED: 0, PARTS: [{"label": "cublas.tf32_algorithm0", "bindings": [0], "attrs": {}}]}
    )
    (seconds,) = on_h100.lower_bounds([Workload("digest", "cublas", "matmul", rounded, 0)]).values()
    assert seconds == pytest.approx(wide / 8)
    narrow = bound(on_h100, R.matmul, square, square, dtype="float16")
    assert narrow == pytest.approx(wide / 16)


def test_a_sum_takes_its_memory(on_h100: CudaCost) -> None:
    assert bound(on_h100, R.add, (2048, 2048), (2048, 2048)) == H100.memory_seconds(3 * 4 * 2048**2)


@pytest.mark.parametrize(
    ("working_set", "evicted"), [(0, 0), (25 * MIB, 0), (25 * MIB + 1, 24 * MIB), (90 * MIB, 96 * MIB),
                                 (1 << 40, 96 * MIB)]
)  # fmt: skip
def test_weights_leave_a_cache_that_has_two_halves(working_set: int, evicted: int, on_h100: CudaCost) -> None:
    assert on_h100.evict_bytes(working_set) == evicted


def test_kernels_are_compared_and_not_confirmed(on_h100: CudaCost) -> None:
    assert on_h100.why_not(Capability.COMPARE) is None
    why = on_h100.why_not(Capability.CONFIRM)
    assert why == "CudaCost cannot time the kernels of a plan together, in turns"


def test_workers_share_a_lock_and_the_cores(on_h100: CudaCost, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(cost, "usable_cores", lambda: list(range(16)))
    monkeypatch.setattr(cost, "most", lambda: 8)
    monkeypatch.setattr(cost, "WorkerClient", lambda *args: made.append(args))
    for _ in range(2):
        on_h100._made()
    one, other = (args[-1] for args in made)
    assert one == other and one.module == "unity_collage.measure.cuda.worker"
    assert one.hello["lock"].endswith(f"unity_collage.cuda.{os.getuid()}.lock")
    assert one.variables == {"OPENBLAS_NUM_THREADS": "2"}


# Fingerprints


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of libraries for a CPU and for a device, and no others."""
    for name in fingerprint.os.environ:
        if name.startswith((*fingerprint._SETTINGS, *fingerprint._CUDA_SETTINGS)):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")


def test_the_fields_of_a_cost_on_a_cpu_keep_their_order(settings: None) -> None:
    # Databases find costs by the digest of this text.
    text = cost_fingerprint("tvm", host_target(), Method())
    names = "backend,version,tvm,made by,target,threads,method,machine,system,environment"
    assert list(fields_of(text)) == names.split(",")
    assert text.startswith("backend: tvm\nversion: ")
    assert text.endswith("\nenvironment: OMP_WAIT_POLICY=active")


def test_a_cost_on_a_device_holds_for_the_device(settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "device", lambda: H100)
    monkeypatch.setattr(fingerprint, "driver_version", lambda: "580.95.05")
    target = target_of("cuda -arch=sm_90")
    fields = fields_of(cost_fingerprint("tvm", target, Method()))
    assert "threads" not in fields and fields["target"] == str(target)
    assert fields["machine"] == str(H100) and fields["system"] == "driver 580.95.05"
    assert fields["schedules"] == str(GPU_SCHEDULE_VERSION)
    assert fields["method"] == f"{METHOD_VERSION} {Method()}"
    assert "NVIDIA_TF32_OVERRIDE=0" in fields["environment"]
