"""The guard: whatever a kernel does in the worker process ends as a reason that is kept, and the rest is measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels_only import KernelsOnly
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage.annotations import COSTS
from unity_collage.cost.method import Method
from unity_collage.database.costs import CostDatabase, FailureKind
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import AnnotateCandidates, EstimateCosts
from unity_collage.plan.costs import Cost
from unity_collage.testing import fake_backend, graphs
from unity_collage.testing.fake_kernels import CANNOT_COMPILE, MISBEHAVIOURS

QUICK = Method(min_runs=3, max_runs=3, max_warmup_seconds=0.0)

SILENT_SECONDS = 6.0
"""The limit for a kernel that hangs, and for the other kernels of its test."""

REFUSED = [
    ("segfault", FailureKind.CRASH, "it crashed the process: SIGSEGV"),
    ("hang", FailureKind.HANG, f"no answer within {SILENT_SECONDS:g} s while running"),
    ("allocates_without_end", FailureKind.OUT_OF_MEMORY, "memory ran out"),
    ("wrong_numbers", FailureKind.WRONG_NUMBERS, "output 0 is off by"),
    ("wrong_on_edges", FailureKind.WRONG_NUMBERS, "output 0 is off by"),
    ("nan", FailureKind.NOT_FINITE, "output 0 is infinite or NaN where the reference is finite"),
    ("writes_behind_output", FailureKind.WROTE_OUTSIDE, "it wrote outside of its tensors"),
    ("writes_far_behind_output", FailureKind.WROTE_OUTSIDE, "it wrote outside of its tensors"),
    ("writes_before_output", FailureKind.WROTE_OUTSIDE, "it wrote outside of its tensors"),
    ("reads_before_input", FailureKind.WROTE_OUTSIDE, "it read outside of its tensors"),
    ("writes_input", FailureKind.WROTE_OUTSIDE, "it wrote to one of its inputs"),
    ("exits", FailureKind.EXITED, "it ended the process with exit code 0"),
    ("raises", FailureKind.RUN_ERROR, "this kernel raises"),
    (CANNOT_COMPILE, FailureKind.COMPILE_ERROR, "ValueError: this code generator cannot compile"),
]


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """All fakes are among the backends."""
    with fake_backend.installed(tmp_path / "site", *MISBEHAVIOURS, CANNOT_COMPILE):
        yield


def costs(model: MeasuredCost, *backends: str) -> dict[str, Cost]:
    """The costs of relu, exp and tanh in a row, by backend for the relu of the fakes, all of TVM's as one."""
    with uc.host_target():
        mod = AnnotateCandidates((*backends, "tvm"))(IRModule({"main": graphs.chain()}))
        found = COSTS.read(EstimateCosts(model)(mod)["main"]).by_key
    return {key.split(":")[0] if key.startswith("fake") else key: cost for key, cost in found.items()}


def test_every_way_to_misbehave_is_planted() -> None:
    assert {name for name, _, _ in REFUSED} | {"none", "slow"} == {*MISBEHAVIOURS, CANNOT_COMPILE}


@pytest.mark.parametrize(("misbehaviour", "kind", "reason"), REFUSED)
def test_a_kernel_that_misbehaves_is_refused_and_quarantined(
    installed: None, tmp_path: Path, misbehaviour: str, kind: FailureKind, reason: str
) -> None:
    name = f"fake_{misbehaviour}"
    seconds = SILENT_SECONDS if misbehaviour == "hang" else 300.0
    with CostDatabase(tmp_path / "costs.sqlite") as database:
        with KernelsOnly(database, seconds, memory_bytes=1 << 30, method=QUICK) as model:
            found = costs(model, name)
        cost = found.pop(name)
        assert cost.seconds is None and cost.reason.startswith(f"{kind.value}: ") and reason in cost.reason
        assert found and all(other.seconds is not None for other in found.values())
        (entry,) = database.quarantine_entries()
        assert (entry.backend, entry.kind) == (name, kind) and reason in entry.reason
        again = costs(KernelsOnly(database, method=QUICK), name)[name]
        assert (again.origin, again.reason) == ("database", cost.reason)


def test_a_right_kernel_and_a_slow_one_have_costs(installed: None, tmp_path: Path) -> None:
    with CostDatabase(tmp_path / "costs.sqlite") as database, KernelsOnly(database, method=QUICK) as model:
        found = costs(model, "fake_none", "fake_slow")
    assert found["fake_none"].seconds is not None
    assert found["fake_slow"].seconds is not None and found["fake_slow"].seconds > 0.02


def test_several_that_misbehave_in_one_race_leave_the_others_their_costs(
    installed: None, tmp_path: Path
) -> None:
    """The overheads are measured too, with kernels of all four."""
    names = ("fake_segfault", "fake_wrong_numbers", "fake_exits", "fake_none")
    with CostDatabase(tmp_path / "costs.sqlite") as database, MeasuredCost(database, method=QUICK) as model:
        found = costs(model, *names)
    assert [found[name].seconds is None for name in names] == [True, True, True, False]
    assert all(cost.seconds is not None for key, cost in found.items() if key.startswith("tvm"))
