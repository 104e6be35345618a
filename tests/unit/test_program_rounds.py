"""How often programs run in a comparison: those that take long run less often."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from unity_collage import runtime
from unity_collage.profile.worker import LoadedPrograms

ROUNDS, LEAST, ROUND_SECONDS = 4, 3, 0.001
SLOW = 0.02


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedPrograms:
    np.savez(tmp_path / "inputs.npz", **{"0 x": np.zeros(1)})
    return LoadedPrograms(runtime.num_threads(), tmp_path / "inputs.npz", 1)


def runs_of(loaded: LoadedPrograms, takes: float, known: float, percentile: float = 50.0) -> tuple[int, int]:
    """How many runs and rounds a program has that takes ``takes`` seconds, if its first run took ``known``."""
    calls: list[float] = []

    def run() -> None:
        calls.append(takes)
        time.sleep(takes)

    loaded._runs["one"], loaded._seconds["one"] = [run], known  # pyright: ignore[reportPrivateUsage]
    asked = {"names": ["one"], "rounds": ROUNDS, "round_seconds": ROUND_SECONDS, "runs": LEAST}
    reply = loaded.answer({"ask": "turns", "percentile": percentile, **asked})
    return len(calls), len(reply["medians"]["one"])


def test_a_program_that_takes_long_runs_once_in_a_round(loaded: LoadedPrograms) -> None:
    assert runs_of(loaded, SLOW, SLOW) == (ROUNDS, ROUNDS)


def test_a_program_that_takes_longer_has_fewer_rounds(loaded: LoadedPrograms) -> None:
    assert runs_of(loaded, SLOW, 5.0) == (3, 3)
    assert runs_of(loaded, SLOW, 10.0) == (2, 2)
    assert runs_of(loaded, SLOW, 100.0) == (1, 1)


def test_a_fast_program_and_a_percentile_have_all_runs(loaded: LoadedPrograms) -> None:
    runs, rounds = runs_of(loaded, 0.0, 1e-5)
    assert runs > ROUNDS * LEAST and rounds == ROUNDS
    runs, rounds = runs_of(loaded, SLOW, 100.0, percentile=90.0)
    assert runs >= ROUNDS * LEAST and rounds == ROUNDS
