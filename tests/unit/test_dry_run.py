"""A dry run: candidates, refusals, and how many kernels would be measured for how long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tvm
from rich.console import Console
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage.cost.asking import workloads
from unity_collage.cost.fingerprint import cost_fingerprint
from unity_collage.cost.method import Method
from unity_collage.database.pace import SECONDS_PER_KERNEL, Pace, pace
from unity_collage.database.rows import CostRow
from unity_collage.inspection.dry_run import DryRun, FunctionDryRun, OfRule, Refusals
from unity_collage.measure.measured import MeasuredCost
from unity_collage.pipeline import Pipeline
from unity_collage.plan.costs import Cost
from unity_collage.processes.child import Child
from unity_collage.report.dry_run import dry_run_summary
from unity_collage.target import host_target
from unity_collage.testing import graphs

MODEL = IRModule({"main": graphs.chain()})


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(Child, "__init__", fail)
    monkeypatch.setattr("subprocess.run", fail)


def test_a_database_that_is_not_there_is_empty_and_stays_away(tmp_path: Path) -> None:
    where = tmp_path / "costs.sqlite"
    found = uc.dry_run(MODEL, backends=["tvm"], database=where)
    assert not where.exists() and found.database == str(where)
    rules = {(rule.backend, rule.rule): rule for rule in found.functions["main"].rules}
    assert rules["tvm", "cone"].candidates == rules["tvm", "cone"].kernels == found.unknown == 6
    assert found.known == 0 and found.seconds == pytest.approx(6 * SECONDS_PER_KERNEL)


def test_refusals_are_counted_by_backend(tmp_path: Path) -> None:
    found = uc.dry_run(MODEL, backends=["onednn", "tvm"], database=tmp_path / "costs.sqlite")
    (declined,) = found.functions["main"].declined
    assert declined.backend == "onednn" and declined.bindings >= 1
    counts = [count for _, count in declined.reasons]
    assert counts == sorted(counts, reverse=True) and any("NaN" in reason for reason, _ in declined.reasons)


def test_what_the_database_knows_is_not_measured(tmp_path: Path) -> None:
    database = uc.CostDatabase(tmp_path / "costs.sqlite")
    model = MeasuredCost(database, locked=True)
    with host_target() as target:
        mod = tvm.transform.Sequential(Pipeline(backends=("tvm",), model=model).until_candidates())(MODEL)
        asked = list({w.key: w for w in workloads(mod["main"], model, mod).values()}.values())
        here = cost_fingerprint("tvm", target, Method())
        database.put(asked[0].key, here, "relu", Cost(1e-6, 1e-6, 1e-6, 9), backend="tvm")
        database.put(asked[1].key, here, "exp", Cost(None, reason="crashed"), backend="tvm")
    found = uc.dry_run(MODEL, backends=["tvm"], database=database)
    assert (found.known, found.unknown) == (2, len(asked) - 2)
    other = uc.dry_run(MODEL, backends=["tvm"], database=database, percentile=90)
    assert other.known == 0, "costs of another percentile are others"
    assert other.pace.seconds > SECONDS_PER_KERNEL


def row(created: float, fingerprint: str = "here") -> CostRow:
    return CostRow("k", fingerprint, "", "tvm", 1.0, 1.0, 1.0, 9, "", True, "", False, created)


def test_the_pace_is_that_of_the_records_here_without_pauses() -> None:
    sessions = [*(0.5 * i for i in range(20)), *(1000 + 0.5 * i for i in range(20))]
    rows = [*map(row, sessions), *(row(0.01 * i, "elsewhere") for i in range(100))]
    assert pace(rows, ["here"]) == Pace(0.5, 38)
    assert pace(rows[:10], ["here"]) == Pace(SECONDS_PER_KERNEL, 0)
    assert pace([], [], longer=1.9).seconds == pytest.approx(SECONDS_PER_KERNEL + 1.9)


def shown(found: DryRun) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(dry_run_summary(found))
    return captured.get()


def test_the_summary_has_the_figures_and_the_budget() -> None:
    reasons = (("too wide", 5), ("too deep", 4), ("odd", 2), ("rare", 1))
    function = FunctionDryRun(9, (OfRule("tvm", "cone", 6, 4),), (Refusals("onednn", 7, reasons),), "why")
    text = shown(DryRun({"main": function}, 1, 300, Pace(0.5, 40), "costs.sqlite", 35.0))
    assert "main: 9 bindings, 6 candidates" in text and "too wide" in text and "rare" not in text
    assert "(1 reason more)" in text and "1 of 301 kernels are in costs.sqlite" in text
    assert "about 150 s, 500 ms each, as 40 costs did here" in text
    assert "the budget ends it after 35.0 s" in text
    unlimited = shown(DryRun({"main": function}, 1, 3, Pace(), "costs.sqlite", None))
    assert "which is an assumption" in unlimited and "budget" not in unlimited
