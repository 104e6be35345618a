"""The records of tuned kernels, and of failures of MetaSchedule; the process that tunes has given replies."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import tirx
from tvm.target import Target

from unity_collage.measure.tuning import tuner
from unity_collage.measure.tuning.records import FAILURES, Tuned, TuningRecords
from unity_collage.processes.child import STARTING

KERNEL = tirx.PrimFunc([], tirx.Evaluate(0))
TARGET = Target("llvm")
FAILED = {"reason": "InternalError: no rule applies"}
CRASHED = "reading the question"


class Failing:
    """A process that fails for each kernel."""

    def __init__(self, stage: str) -> None:
        self.stage, self.asked = stage, 0

    def ask(self, _request: Mapping[str, Any]) -> dict[str, str]:
        self.asked += 1
        return FAILED


def tuned(name: str) -> Tuned:
    return Tuned(name, str(TARGET), tvm.__version__, 4, "[]", 1.0)


@pytest.mark.parametrize(
    ("stage", "works", "asked"), [(CRASHED, True, 2), (CRASHED, False, 4), (STARTING, True, 4)]
)
def test_a_kernel_that_fails_twice_is_given_up_where_others_are_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, works: bool, asked: int
) -> None:
    monkeypatch.setattr(tuner, "why_unavailable", lambda: None)
    if works:
        TuningRecords(tmp_path).keep(tuned("another"))
    process = Failing(stage)
    for _ in range(4):
        tuning = tuner.Tuner(tmp_path, 4)
        tuning._child = process  # type: ignore[assignment]
        assert tuning.tuned(KERNEL, TARGET) is None
    assert process.asked == asked
    (tmp_path / FAILURES).unlink(missing_ok=True)
    assert tuning.tuned(KERNEL, TARGET) is None and process.asked == asked + 1


def test_a_line_behind_one_that_is_not_whole_can_be_read(tmp_path: Path) -> None:
    records = TuningRecords(tmp_path)
    records.keep(tuned("one"))
    with (tmp_path / "tuned.jsonl").open("a") as file:
        file.write('{"kernel": "na')
    records.keep(tuned("two"))
    assert [records.known(name, TARGET) for name in ("one", "two")] == [tuned("one"), tuned("two")]
    lines = (tmp_path / "tuned.jsonl").read_text().splitlines()
    assert [json.loads(lines[number]) for number in (0, 2)] == [asdict(tuned("one")), asdict(tuned("two"))]


def test_a_schedule_that_cannot_be_stored_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    records = TuningRecords(tmp_path)
    monkeypatch.setattr(Path, "open", full)
    with caplog.at_level(logging.WARNING):
        records.keep(tuned("one"))
    assert "one is not stored in" in caplog.text and "No space left on device" in caplog.text
