"""Whether programs of other runtimes pass on NaN and infinity as ours do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op

from unity_collage.feedback.candidates import OURS
from unity_collage.feedback.comparison import CandidateProgram, Comparison
from unity_collage.feedback.settings import Refinement
from unity_collage.profile.exceptional import exceptional_sets, loses
from unity_collage.profile.inputs import why_not_exceptional
from unity_collage.testing.conformance.cases import function

NAN, INF = np.nan, np.inf


def floats(*values: float) -> np.ndarray:
    return np.array(values, "float32")


@pytest.mark.parametrize(
    ("value", "right", "lost"),
    [
        (floats(1, 0), floats(1, NAN), True),
        (floats(1, 0), floats(1, -INF), True),
        (floats(1, INF), floats(1, NAN), False),
        (floats(NAN, 0), floats(NAN, NAN), False),
        (floats(NAN, 0), floats(1, 0), False),
        (np.array([1, 2]), np.array([3, 4]), False),
    ],
)
def test_lost_values(value: np.ndarray, right: np.ndarray, lost: bool) -> None:
    assert loses([value], [right]) is lost


def test_the_middle_of_each_input_of_floats_is_exceptional() -> None:
    sets = dict(exceptional_sets([[floats(1, 2, 3), np.array([1, 2])]]))
    assert list(sets) == ["NaN", "infinity", "-infinity"]
    np.testing.assert_array_equal(sets["infinity"][0][0], floats(1, INF, 3))
    np.testing.assert_array_equal(sets["infinity"][0][1], [1, 2])
    assert not list(exceptional_sets([[np.array([1, 2])]]))


def module(body: Callable[[relax.Expr], relax.Expr]) -> IRModule:
    """``body`` of a tensor of floats."""
    return IRModule({"main": function(body, ((4,),), "float32")})


PLAIN = module(op.nn.relu)
INDEXES = module(lambda x: op.take(x, op.astype(x, "int64"), axis=0))


def test_integers_of_floats_are_not_made_of_nan() -> None:
    assert why_not_exceptional(PLAIN) is None
    assert why_not_exceptional(INDEXES) == "relax.astype makes integers of floats"


def compared(
    mod: IRModule, whole_models: Sequence[str], lost: Callable[[str, str], Any], ratio: float = 2.0
) -> Comparison:
    """A comparison of programs of which those of ``whole_models`` are ``ratio`` times as fast as ours."""
    seconds = {name: 1.0 / ratio if name in whole_models else 1.0 for name in (OURS, *whole_models)}
    builder: Any = SimpleNamespace(whole_models=dict.fromkeys(whole_models), imported=mod)
    worker: Any = SimpleNamespace(
        timed_in_turns=lambda names, rounds, _: {name: [seconds[name]] * rounds for name in names},
        lost=lambda name, reference, _: lost(name, reference),
    )
    built: Any = (mod, None)
    programs = {name: CandidateProgram(None, built) for name in seconds}
    return Comparison(builder, Refinement(), worker, lambda _: None, programs)


@pytest.mark.parametrize(
    ("mod", "winner", "reason"),
    [(PLAIN, OURS, "it makes numbers of NaN and infinity in the inputs"), (INDEXES, "theirs", "")],
)
def test_a_runtime_that_loses_nan_is_refused(mod: IRModule, winner: str, reason: str) -> None:
    found = compared(mod, ["theirs"], lambda *_: ["NaN", "infinity"])
    assert found.finish() == winner
    assert found.programs["theirs"].reason == reason


def test_the_next_one_is_asked_once() -> None:
    asked: list[tuple[str, str]] = []

    def lost(name: str, reference: str) -> Any:
        asked.append((name, reference))
        return ["NaN"] if name == "theirs" else []

    found = compared(PLAIN, ["theirs", "others"], lost)
    assert found.finish() == "others"
    assert found.why_lossy("others") == ""
    assert asked == [("theirs", OURS), ("others", OURS)]


def test_ours_is_not_hopeless_beside_one_that_is_refused() -> None:
    found = compared(PLAIN, ["theirs"], lambda *_: ["NaN"], ratio=10.0)
    assert found.finish() == OURS
    assert found.programs[OURS].seconds and not found.programs[OURS].reason


def test_one_that_crashes_on_nan_is_refused() -> None:
    found = compared(PLAIN, ["theirs"], lambda *_: "the worker crashed")
    assert found.finish() == OURS
    assert found.programs["theirs"].reason == "the worker crashed"


def test_the_first_runtime_alone_is_not_asked() -> None:
    found = compared(PLAIN, ["theirs"], lambda *_: ["NaN"])
    del found.programs[OURS]
    assert found.finish() == "theirs"


def test_others_are_timed_again_where_the_promising_ones_fail_in_turns() -> None:
    """Ours runs in the first rounds only, and the greedy one is slower."""
    asked: list[list[str]] = []

    def in_turns(names: list[str], rounds: int, _: float) -> Any:
        asked.append(names)
        if OURS in names and len(asked) > 1:
            return "it crashes"
        return {name: [1.0 if name == OURS else 9.0] * rounds for name in names}

    found = compared(PLAIN, [], lambda *_: [])
    built: Any = (PLAIN, None)
    found.programs["greedy"] = CandidateProgram(None, built)
    found.worker.timed_in_turns = in_turns  # type: ignore[method-assign]
    assert found.finish() == "greedy"
    assert found.programs[OURS].reason == "it crashes"
