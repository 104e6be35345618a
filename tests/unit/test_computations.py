"""Which kernels of a question are timed together, and how many kernels a question has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import LIFTED
from unity_collage.cost.method import Method
from unity_collage.cost.model import Workload
from unity_collage.database.rows import CostRow
from unity_collage.measure import pace
from unity_collage.measure.computations import batches, computations, evicted_beside
from unity_collage.measure.pace import in_questions
from unity_collage.measure.verify import _workload
from unity_collage.measure.worker import MeasuringWorker
from unity_collage.runtime.timing import Timed
from unity_collage.testing.conformance.cases import function

KIB = 1 << 10


def scaled(kib: int) -> relax.Function:
    """x * w, each of ``kib`` KiB; w is a constant of the kernel."""
    shape = (kib * KIB // 4,)
    return function(lambda x, w: R.multiply(x, w), [shape, shape]).with_attr(LIFTED, 1)


def question(sizes: dict[str, int], backend: str = "tvm") -> dict[str, dict[str, str]]:
    """A kernel of the given KiB for each key ``digest.number``."""
    return {
        key: {
            "digest": key.split(".")[0],
            "backend": backend,
            "function": tvm.ir.save_json(scaled(kib)),
        }
        for key, kib in sizes.items()
    }


def keys(found: list[list]) -> list[list[str]]:
    return [[key for one in batch for key in one.asked] for batch in found]


def test_rivals_share_all_but_constants() -> None:
    one, other = computations(question({"a.0": 1, "b.0": 2, "a.1": 1}))
    assert list(one.funcs) == ["a.0", "a.1"] and list(other.funcs) == ["b.0"]
    assert one.touched_bytes == 2 * KIB + 2 * 2 * KIB  # x, the result; w twice for each kernel
    assert other.touched_bytes == 4 * KIB + 2 * 2 * KIB


def test_kernels_are_timed_together_as_long_as_they_touch_less_than_is_evicted() -> None:
    asked = computations(question({"a.0": 1, "b.0": 1, "c.0": 8, "d.0": 1, "e.0": 1}))
    assert keys([*batches(asked, 16 * KIB)]) == [["c.0"], ["a.0", "b.0"], ["d.0", "e.0"]]
    assert keys([*batches(asked, 0)]) == [[one] for one in ("a.0", "b.0", "c.0", "d.0", "e.0")]


def test_what_a_batch_touches_besides_a_kernel_need_not_be_evicted_again() -> None:
    one, other = computations(question({"a.0": 1, "b.0": 1}))
    assert evicted_beside([one], 64 * KIB) == 64 * KIB
    assert evicted_beside([one, other], 64 * KIB) == 60 * KIB
    assert evicted_beside([one, other], KIB) == 0


def asked(digest: str, kib: int = 1, evict_bytes: int = 0) -> Workload:
    return Workload(digest, "tvm", "multiply", scaled(kib), evict_bytes, computation=digest)


def sizes_of(groups: list[list[Workload]], seconds: float = 1e9) -> list[int]:
    return [len(question) for question in in_questions(groups, lambda: seconds)]


def test_a_question_has_as_many_kernels_as_there_is_time_for() -> None:
    groups = [[asked(str(number))] for number in range(40)]
    assert sizes_of(groups) == [16, 16, 8]
    assert sizes_of(groups[:5], 0.0) == [1] * 5
    assert sizes_of(groups[:2], 2 * pace._SECONDS) == [2]


def test_what_computes_the_same_stays_together_and_in_order() -> None:
    groups = [[asked("b")] * 3, [asked("a")] * 15, [asked("c")]]
    assert [[w.computation for w in question] for question in in_questions(groups, lambda: 1e9)] == [
        ["b"] * 3,
        ["a"] * 15 + ["c"],
    ]


def test_a_question_is_about_one_state_of_the_caches_and_not_too_large() -> None:
    assert sizes_of([[asked("a")], [asked("b", evict_bytes=KIB)]]) == [1, 1]
    large = pace._MOST_BYTES // KIB // 4
    assert sizes_of([[asked("a", large)], [asked("b", large)]]) == [1, 1]


def test_kernels_for_another_target_are_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of kernels are equal for several targets, each of which was in scope when it was asked about.

    There is one go in any case, though no time is left.
    """
    built: list[str] = []

    def noted(_func: Any, _inputs: Any, _asked: Any, target: Target) -> None:
        built.append(str(target.attrs["mcpu"]))

    bench: Any = SimpleNamespace(
        runners_of=lambda _func, _inputs, kernels: dict.fromkeys(kernels, "runner"),
        is_busy_since=lambda: lambda: False,
        time_together=lambda runners, *_: [Timed([1e-6], False) for _ in runners],
        after_timing=lambda: None,
    )
    said: list[dict[str, Any]] = []
    worker = MeasuringWorker(bench, Method(), 1 << 30, said.append)
    monkeypatch.setattr(worker._checker, "built", noted)
    asked = {
        "ask": "together",
        "candidates": question({"a.0": 1}),
        "evict_bytes": 0,
        "seconds": 0.0,
        "apart": False,
    }
    for processor in ("haswell", "haswell", "skylake-avx512"):
        target = Target({"kind": "llvm", "mcpu": processor})
        worker._time_together({**asked, "target": str(target)})
    assert built == ["haswell", "skylake-avx512"]
    assert [message["seconds"] for message in said if "seconds" in message] == [1e-6] * 3


@pytest.mark.parametrize("schedule", ["", "0123"])
@pytest.mark.parametrize("target", ["", '{"kind": "llvm"}'])
def test_a_stored_cost_is_measured_again_under_its_own_key(schedule: str, target: str) -> None:
    wanted = Workload("digest", "tvm", "multiply", scaled(1), 6 << 20, schedule, target=target)
    row = CostRow(wanted.key, "here", "multiply", "tvm", 1e-6, 1e-6, 1e-6, 9, "", True, "", False, 0.0)
    again = _workload(row, tvm.ir.save_json(wanted.func))
    assert (again.key, again.evict_bytes) == (wanted.key, 6 << 20)
