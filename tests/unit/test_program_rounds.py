"""How often programs run in a comparison: those that take long run less often."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from tvm.ir import IRModule
from tvm.relax import op

from unity_collage import runtime
from unity_collage.profile.inputs import dummy_inputs
from unity_collage.profile.stored_inputs import store, stored
from unity_collage.profile.worker import LoadedPrograms
from unity_collage.testing.conformance.cases import function

ROUNDS, LEAST, ROUND_SECONDS = 4, 3, 0.001
SLOW = 0.02


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedPrograms:
    store(tmp_path / "inputs.npz", [[np.zeros(1)]])
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


def test_inputs_keep_their_types_and_are_drawn_for_all_floats(tmp_path: Path) -> None:
    mod = IRModule({"main": function(lambda x: op.nn.relu(x), [(3, 5)], "bfloat16")})
    inputs = [*dummy_inputs(mod), np.array(True), np.arange(3)]
    store(tmp_path / "stored.npz", [inputs, [], inputs[1:]])
    first, second, third = stored(tmp_path / "stored.npz", 3)
    assert second == []
    for found, right in zip([*first, *third], [*inputs, *inputs[1:]], strict=True):
        assert (found.dtype, found.shape) == (right.dtype, right.shape)
        np.testing.assert_array_equal(found, right)
    assert first[0].dtype.name == "bfloat16" and first[0].any()
