"""Benches: the CPU's, and that of a CUDA device whose memory is here the CPU's."""

from __future__ import annotations

import ctypes
import fcntl
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import relax as R

from unity_collage.annotations import LIFTED
from unity_collage.cost.method import Method
from unity_collage.measure.bench import Bench, CpuBench
from unity_collage.measure.built_kernel import BuiltKernel
from unity_collage.measure.cuda import bench as cuda_bench
from unity_collage.measure.cuda.bench import CudaBench
from unity_collage.measure.guard import WROTE_INPUT, WROTE_OUTSIDE
from unity_collage.measure.process_state import Spoilt
from unity_collage.measure.refusal import Refused
from unity_collage.runtime.timing import Runner, Timed
from unity_collage.target import host_target
from unity_collage.testing.conformance.cases import function

X = np.arange(15, dtype="float32").reshape(3, 5)
W = np.full((5,), 2.0, "float32")


def scaled() -> relax.Function:
    """x * w, and x: the second parameter is a constant of the kernel."""
    return function(lambda x, w: relax.Tuple([R.multiply(x, w), R.nn.relu(x)]), [(3, 5), (5,)]).with_attr(
        LIFTED, 1
    )


def kernel(x: Any, w: Any, product: Any, copy: Any) -> None:
    product.copyfrom(x.numpy() * w.numpy())
    copy.copyfrom(x.numpy())


def built(*names: str) -> dict[str, BuiltKernel]:
    called = tvm.runtime.convert(kernel)
    return {name: BuiltKernel(called, [tvm.runtime.tensor(W)]) for name in names}


@pytest.fixture
def cuda_on_cpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The CUDA device is the CPU."""
    monkeypatch.setattr(tvm, "cuda", tvm.cpu)
    monkeypatch.setattr(cuda_bench.cuda, "load", lambda: None)
    return monkeypatch


@pytest.fixture(params=[CpuBench, CudaBench])
def bench(request: pytest.FixtureRequest, cuda_on_cpu: pytest.MonkeyPatch) -> Bench:
    return request.param()


# Both


def test_outputs_are_those_of_the_kernel(bench: Bench) -> None:
    for at_end in (False, True):
        got = bench.outputs_of(kernel, [X], [tvm.runtime.tensor(W)], scaled(), at_end)
        np.testing.assert_array_equal(got[0], X * W)
        np.testing.assert_array_equal(got[1], X)


def test_a_write_behind_an_output_is_noticed(bench: Bench) -> None:
    def writes_behind(x: Any, w: Any, product: Any, copy: Any) -> None:
        kernel(x, w, product, copy)
        ctypes.memset(copy.data_ptr() + X.nbytes, 0, 1)

    with pytest.raises(Refused, match=WROTE_OUTSIDE):
        bench.outputs_of(writes_behind, [X], [tvm.runtime.tensor(W)], scaled(), False)


@pytest.mark.parametrize("number", [0, 1])
def test_a_write_to_an_input_or_a_constant_on_the_device_is_noticed(
    cuda_on_cpu: pytest.MonkeyPatch, number: int
) -> None:
    """On the CPU it ends the process."""
    with_nan = np.where(X > 3, X, np.float32(np.nan))

    def writes(*tensors: Any) -> None:
        tensors[number].copyfrom(tensors[number].numpy() + np.float32(1))

    bench = CudaBench()
    with pytest.raises(Refused, match=WROTE_INPUT):
        bench.outputs_of(writes, [with_nan], [tvm.runtime.tensor(W)], scaled(), False)
    bench.outputs_of(kernel, [with_nan], [tvm.runtime.tensor(W)], scaled(), False)


def test_kernels_for_one_computation_share_all_but_constants(bench: Bench) -> None:
    runners = bench.runners_of(scaled(), [X, W], built("a", "b"))
    (x, w, *outputs), others = runners["a"].args, runners["b"].args
    assert others[0] is x and others[1] is not w
    assert list(map(id, others[2:])) == list(map(id, outputs))
    assert runners["a"].warm[0] is x and len(outputs) == 2
    runners["a"].func(*runners["a"].args)
    np.testing.assert_array_equal(outputs[0].numpy(), X * W)


def test_what_runs_may_fail(bench: Bench) -> None:
    assert bench.settled(lambda: 3) == 3
    with pytest.raises(KeyError):
        bench.settled(lambda: {}["missing"])
    assert bench.settled(lambda: 4) == 4
    bench.after_building()
    bench.after_timing()


# The CPU's


def test_kernels_are_timed_together_so_many_times() -> None:
    bench = CpuBench()
    runners = list(bench.runners_of(scaled(), [X, W], built("a", "b")).values())
    timed = bench.time_together(runners, 3, 0, apart=False)
    assert [len(one.seconds) for one in timed] == [3, 3]
    assert all(second > 0 for one in timed for second in one.seconds)


def test_kernels_are_timed_by_the_method() -> None:
    bench = CpuBench()
    runners = list(bench.runners_of(scaled(), [X, W], built("a")).values())
    (timed,) = bench.time_in_turns(runners, Method(min_runs=9, max_runs=9), 0)
    assert 3 <= len(timed.seconds) <= 9


# The device's


class Timer:
    """Stands for the timing loop of the device."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.on_time: Callable[[], None] = lambda: None

    def __call__(self, runners: list[Runner], **asked: Any) -> list[Timed]:
        self.on_time()
        self.asked = asked
        return [Timed([1.0], False) for _ in runners]


@pytest.fixture
def timer(cuda_on_cpu: pytest.MonkeyPatch) -> Timer:
    found = Timer()
    cuda_on_cpu.setattr(cuda_bench.cuda_timing, "time_in_turns", found)
    cuda_on_cpu.setattr(cuda_bench.cuda_timing, "launch_seconds", lambda: 2e-6)
    return found


def test_the_device_is_timed_by_the_method(timer: Timer) -> None:
    method = Method(percentile=25, confidence=0.9, tolerance=0.1, min_runs=10, max_runs=20, max_seconds=3)
    assert CudaBench().time_in_turns([], method, 7) == []
    named = {name: getattr(method, name) for name in timer.asked if name != "evict_bytes"}
    assert timer.asked == {**named, "evict_bytes": 7} and len(named) == 6


def test_the_device_times_kernels_together_so_many_times(timer: Timer) -> None:
    CudaBench().time_together([], 3, 7, apart=True)
    assert timer.asked == {"min_runs": 3, "max_runs": 3, "max_seconds": math.inf, "evict_bytes": 7}


def test_a_launch_on_the_device_costs_the_same_for_all_backends(timer: Timer) -> None:
    found = CudaBench().overheads(host_target(), ["tvm", "cublas"], print)
    assert found == {"seconds": 2e-6, "launches": {"tvm": 2e-6, "cublas": 2e-6}, "transitions": {}}


def test_an_error_that_the_device_repeats_spoils_the_process(cuda_on_cpu: pytest.MonkeyPatch) -> None:
    def illegal_access() -> None:
        raise RuntimeError("cudaErrorIllegalAddress")

    bench = CudaBench()
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):  # which the device does not repeat
        bench.settled(illegal_access)
    bench._device = SimpleNamespace(sync=illegal_access)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(Spoilt, match="the device can run nothing more: cudaErrorIllegalAddress"):
        bench.settled(illegal_access)
    with pytest.raises(
        Spoilt, match="the device can run nothing more"
    ):  # only the wait for the kernel reports it
        bench.settled(lambda: None)
    with pytest.raises(Spoilt, match="the device failed while kernels were timed"):
        bench.after_timing()


def test_libraries_choose_before_the_first_run(cuda_on_cpu: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def module(kind: str) -> Any:
        return SimpleNamespace(kind=kind, inspect_source=asked.append)

    CudaBench().prepare(module("cuda"))
    assert asked == []
    CudaBench().prepare(module("collage.cudnn"))
    assert asked == ["implementations"]


def test_one_process_at_a_time_uses_the_device(timer: Timer, tmp_path: Path) -> None:
    lock = tmp_path / "lock"

    def is_free() -> bool:
        with lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    bench, seen = CudaBench(str(lock)), list[bool]()
    timer.on_time = lambda: seen.append(is_free())
    assert is_free() and bench.settled(is_free) is False and is_free()
    bench.time_in_turns([], Method(), 0)
    bench.time_together([], 1, 0, apart=False)
    bench.overheads(host_target(), [], print)
    assert seen == [False, False] and is_free()
    bench.prepare(SimpleNamespace(kind="collage.cudnn", inspect_source=lambda _: seen.append(is_free())))
    assert seen[-1] is True  # others may use the device while a library compiles
