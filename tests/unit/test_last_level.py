"""How much of the third-level cache is there: found on curves, measured once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unity_collage.database.costs import CostDatabase
from unity_collage.errors import CollageError
from unity_collage.machine import caches, last_level, own_process
from unity_collage.machine.caches import Caches, reported
from unity_collage.machine.last_level import knee

MIB = 1 << 20


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (
            {4: 21.5, 8: 21.0, 12: 21.5, 16: 19.2, 24: 13.1, 64: 10.4, 96: 5.4, 256: 10.5},
            16,
        ),  # it reports 105 MiB
        ({4: 30.0, 32: 30.0, 64: 29.0, 128: 9.0}, 64),
        ({4: 11.0, 32: 10.5, 128: 10.0}, None),  # nothing is faster than memory
        ({4: 30.0, 8: 9.0, 16: 25.0, 128: 9.0}, 4),  # what is found behind a slow one is noise
    ],
)
def test_the_knee_of_a_curve(rates: dict[int, float], expected: int | None) -> None:
    assert knee(list(rates), rates.__getitem__) == expected


def test_one_fast_trial_says_that_a_buffer_is_in_the_cache() -> None:
    """Other work makes trials slow, and nothing makes them fast."""
    rates = {4: [30.0], 8: [9.0, 9.0, 29.0], 16: [8.0], 32: [9.0]}

    def read(size: int) -> float:
        return rates[size].pop(0) if len(rates[size]) > 1 else rates[size][0]

    assert knee(list(rates), read) == 8


def test_what_is_known_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = CostDatabase(tmp_path / "costs.sqlite")
    monkeypatch.setattr(last_level, "measured_by", lambda *_: pytest.fail("measured"))
    assert last_level.caches(database, locked=True) == reported()
    last_level.store(database, 16 * MIB)
    assert last_level.caches(database) == Caches(reported().l2_bytes, 16 * MIB)


def test_a_measured_cache_is_no_larger_than_what_is_reported(tmp_path: Path) -> None:
    database = CostDatabase(tmp_path / "costs.sqlite")
    found = last_level.caches(database)
    assert reported().l2_bytes <= found.l3_bytes <= max(reported().l2_bytes, reported().l3_bytes)
    assert last_level.caches(database) == found


@pytest.mark.parametrize(
    ("code", "seconds", "reason"),
    [
        ("raise SystemExit('no such function')", 300.0, "exit code 1: no such function"),
        ("raise SystemExit(3)", 300.0, "exit code 3"),
        ("print('16 MiB')", 300.0, "JSONDecodeError: "),
        ("import time; time.sleep(3600)", 1.0, "no answer within 1 s"),
    ],
)
def test_a_measurement_that_fails_says_why(
    code: str, seconds: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(own_process, "_MOST_SECONDS", seconds)
    with pytest.raises(CollageError, match=f"this machine cannot be measured by failing: {reason}"):
        own_process.measured_by("failing")


def test_ctrl_c_reaches_this_process_alone(tmp_path: Path) -> None:
    """The first one only ends the measuring of kernels. In a terminal all processes of the group get it."""
    (tmp_path / "slow.py").write_text("import time; time.sleep(0.5); print(16)")
    code = (
        "import os, signal, threading\n"
        "from unity_collage.machine.own_process import measured_by\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\n"
        "threading.Timer(0.25, lambda: os.killpg(0, signal.SIGINT)).start()\n"
        "print(measured_by('slow'))"
    )
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "16\n", done.stderr


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1536K", 1536 << 10), ("105M", 105 * MIB), ("64", 64), (None, 7), ("0K", 7), ("", 7)],
)
def test_a_level_whose_size_the_system_does_not_say_has_the_assumed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str | None, expected: int
) -> None:
    """Some virtual machines list the levels of their caches and no sizes."""
    (folder := tmp_path / "index3").mkdir()
    (folder / "level").write_text("3\n")
    if size is not None:
        (folder / "size").write_text(f"{size}\n")
    monkeypatch.setattr(caches, "_CACHES", tmp_path)
    assert caches._level_bytes.__wrapped__(3, 7) == expected
