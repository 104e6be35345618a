"""Result files of the benchmarks: what is kept of a run that was ended, and which run may go on with it."""

import json
from argparse import Namespace

import pytest
from result_file import ResultFile
from strategies import KernelBudget

OPTIONS = Namespace(models=["a", "b"], rounds=3, json=None)


def test_rows_are_stored_at_once_and_a_failed_one_is_measured_again(tmp_path, capsys):
    path = tmp_path / "rows.json"

    def measured(name):
        if name == "bad":
            assert list(json.loads(path.read_text())["rows"]) == ["first"]
            raise RuntimeError("no such kernel")
        return {"seconds": 1.0}

    assert not ResultFile(path, OPTIONS).fill(["first", "bad", "last"], measured)
    assert "bad failed: no such kernel" in capsys.readouterr().err

    asked = []
    again = ResultFile(path, Namespace(models=["c"], rounds=3, json=path))
    assert again.fill(["first", "bad", "last"], lambda name: asked.append(name) or {"seconds": 2.0})
    assert asked == ["bad"]
    stored = json.loads(path.read_text())
    assert {name: row["seconds"] for name, row in stored["rows"].items()} == {
        "first": 1.0,
        "last": 1.0,
        "bad": 2.0,
    }
    assert all(row["date"] for row in stored["rows"].values())
    assert {"machine", "threads", "target", "versions"} <= stored["run"].keys()


def test_a_run_with_other_options_is_refused(tmp_path):
    path = tmp_path / "rows.json"
    ResultFile(path, OPTIONS).fill(["first"], lambda _: {})
    with pytest.raises(SystemExit, match=r"options: .*'rounds': 3.* and here .*'rounds': 5"):
        ResultFile(path, Namespace(rounds=5))


def test_a_file_without_a_run_is_refused(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('{"resnet50": {"cold": 48.8}}')
    with pytest.raises(SystemExit, match="it does not say which"):
        ResultFile(path, OPTIONS)


def test_strategies_compare_anew_and_go_on_when_the_budget_for_kernels_is_spent():
    costs = KernelBudget(budget_seconds=0.0)
    assert costs._is_spent(1.0)
    assert not costs.is_budget_spent()
    assert costs.database_and_lock() == (None, False)
