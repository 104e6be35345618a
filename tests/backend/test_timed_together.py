"""A worker that is asked for kernels of several computations: one eviction of the caches serves them all."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm.script import relax as R

from unity_collage.annotations import LIFTED
from unity_collage.cost.method import Method
from unity_collage.measure.bench import CpuBench
from unity_collage.measure.worker import MeasuringWorker
from unity_collage.runtime.timing import Runner, Timed
from unity_collage.target import host_target
from unity_collage.testing.conformance.cases import function

QUICK = Method(min_runs=3, max_runs=3, max_warmup_seconds=0.0, max_seconds=60.0)
MIB = 1 << 20


def product(rows: int) -> str:
    """The product of ``rows`` rows and constant weights."""
    func = function(lambda x, w: R.matmul(x, w), [(rows, 32), (32, 48)])
    return tvm.ir.save_json(func.without_attr("global_symbol").with_attr(LIFTED, 1))


def maximum() -> str:
    func = function(R.nn.relu, [(64, 64)])
    return tvm.ir.save_json(func.without_attr("global_symbol").with_attr(LIFTED, 0))


def question(evict_bytes: int) -> dict[str, Any]:
    """Two kernels for one product, one for another, and one without constants."""
    asked = {
        "tvm:4": ("4", "tvm", product(4)),
        "onednn:4": ("4", "onednn", product(4)),
        "kernel:8": ("8", "onednn", product(8)),
        "relu": ("relu", "tvm", maximum()),
    }
    candidates = {
        key: {"digest": digest, "backend": backend, "function": text}
        for key, (digest, backend, text) in asked.items()
    }
    return {"ask": "cost", "target": str(host_target()), "evict_bytes": evict_bytes, "candidates": candidates}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Runner], int]]:
    """The runners that were timed in turns, and how many bytes were read before each round."""
    found: list[tuple[list[Runner], int]] = []
    original = CpuBench.time_in_turns

    def noted(self: CpuBench, runners: list[Runner], method: Method, evict_bytes: int) -> list[Timed]:
        found.append((list(runners), evict_bytes))
        return original(self, runners, method, evict_bytes)

    monkeypatch.setattr(CpuBench, "time_in_turns", noted)
    return found


def answers(request: dict[str, Any]) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    MeasuringWorker(CpuBench(), QUICK, 1 << 30, said.append).answer(request)
    assert said[-1]["done"]
    return said


def test_kernels_of_several_computations_are_timed_in_the_same_rounds(
    timed: list[tuple[list[Runner], int]],
) -> None:
    said = answers(question(8 * MIB))
    costs = {message["key"]: message for message in said if "seconds" in message}
    assert list(costs) == ["tvm:4", "onednn:4", "kernel:8", "relu"]
    assert all(0 < cost["low"] <= cost["seconds"] <= cost["high"] for cost in costs.values())
    ((runners, evicted),) = timed
    assert [runner.rivals for runner in runners] == [0, 0, 1, 2]
    assert 7 * MIB < evicted < 8 * MIB


def test_twins_have_constants_of_their_own(timed: list[tuple[list[Runner], int]]) -> None:
    answers(question(8 * MIB))
    ((runners, _),) = timed
    (tvm_4, twin_4), (onednn, twin_onednn), (relu, twin_relu) = (
        (runner, runner.twin) for runner in (runners[0], runners[1], runners[3])
    )
    assert twin_4 and twin_onednn and twin_relu
    assert twin_4[0] is tvm_4.func  # the same code
    (x, weights, result), (twin_x, twin_weights, twin_result) = tvm_4.args, twin_4[1]
    assert twin_x is x and twin_result is result and twin_weights is not weights
    assert (twin_weights.numpy() == weights.numpy()).all()  # pyright: ignore
    assert twin_onednn[0] is not onednn.func and list(twin_onednn[1]) == list(onednn.args)
    assert twin_relu[0] is relu.func and list(twin_relu[1]) == list(relu.args)


def test_kernels_in_near_caches_are_timed_by_themselves(timed: list[tuple[list[Runner], int]]) -> None:
    answers(question(0))
    assert [[runner.twin for runner in runners] for runners, _ in timed] == [[None, None], [None], [None]]


@pytest.mark.parametrize("evict_bytes", [0, 8 * MIB])
def test_only_the_first_kernel_is_begun_when_the_time_is_over(evict_bytes: int) -> None:
    said = answers({**question(evict_bytes), "seconds": 0.0})
    assert [message["key"] for message in said if "seconds" in message] == ["tvm:4"]
    assert said[-1]["late"]
    assert not answers(question(evict_bytes))[-1]["late"]


def test_a_computation_that_cannot_be_read_is_no_answer() -> None:
    said: list[dict[str, Any]] = []
    request = question(8 * MIB)
    request["candidates"]["relu"]["function"] = "no function"
    MeasuringWorker(CpuBench(), QUICK, 1 << 30, said.append).answer(request)
    assert "reason" in said[-1] and said[-1]["done"]
