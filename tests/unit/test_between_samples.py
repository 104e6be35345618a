"""The fastest program has to be right with sizes that are no sample: another program confirms its results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from unity_collage.feedback import between
from unity_collage.feedback.between import confirmed
from unity_collage.feedback.candidates import OURS
from unity_collage.feedback.comparison import CandidateProgram, Comparison
from unity_collage.feedback.refine import _remarks
from unity_collage.feedback.settings import Refinement
from unity_collage.plan.comparison import FirstCall, ProgramComparison
from unity_collage.profile.programs import FirstResults
from unity_collage.profile.results import most_apart

OTHER, THIRD = "onednn alone", "TVM alone"
CALL = FirstCall({"batch": 6}, 0.02, 0.01, kernels=3, compiling=0.005)


def compared(
    monkeypatch: pytest.MonkeyPatch, at_samples: float = 0.0, **found: float | str
) -> tuple[str, FirstCall | None, Comparison]:
    """The outcome where programs, fastest first, have these results with other sizes, or do not run there."""
    names = dict(zip((OURS, OTHER, THIRD), found.values(), strict=False))
    monkeypatch.setattr(between, "unmet_sizes", lambda _: [{"batch": 6}])
    monkeypatch.setattr(between, "inputs_of_sizes", lambda *_: [np.zeros(6, np.float32)])

    def first_call(name: str, inputs: list[np.ndarray]) -> FirstResults | str:
        assert [each.shape for each in inputs] == [(6,)]
        value = names[name]
        return value if isinstance(value, str) else FirstResults(0.02, 3, 0.005, [np.array([1.0, value])])

    def later_calls(name: str, _: list[np.ndarray]) -> float | str:
        return value if isinstance(value := names[name], str) else 0.01

    worker: Any = SimpleNamespace(first_call=first_call, later_calls=later_calls, error=lambda *_: at_samples)
    builder: Any = SimpleNamespace(whole_models={}, imported=None)
    programs = {
        name: CandidateProgram(None, seconds=[0.01 * place]) for place, name in enumerate(names, start=1)
    }
    comparison = Comparison(builder, Refinement(), worker, lambda _: None, programs)
    return *confirmed(comparison, OURS), comparison


def test_a_program_that_another_one_confirms_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    winner, call, comparison = compared(monkeypatch, ours=0.5, other=0.5, third=0.9)
    assert winner == OURS and call == CALL
    assert not any(program.reason for program in comparison.programs.values())


def test_a_program_that_does_not_run_there_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    winner, _, comparison = compared(monkeypatch, ours="it ended with SIGSEGV", other=0.5, third=0.5)
    assert winner == OTHER
    assert comparison.programs[OURS].reason == "with batch 6: it ended with SIGSEGV"


def test_a_program_against_two_that_agree_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    winner, call, comparison = compared(monkeypatch, ours=0.9, other=0.5, third=0.5)
    assert winner == OTHER and call is not None and call.differs == ""
    assert comparison.programs[OURS].reason == "with batch 6: its outputs differ from those of all others"


def test_what_differs_as_much_at_the_samples_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(monkeypatch, at_samples=0.3, ours=0.9, other=0.5, third=0.5)[0] == OURS


def test_two_that_differ_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    winner, call, comparison = compared(monkeypatch, ours=0.9, other=0.5)
    assert winner == OURS and call is not None
    assert call.differs == "by 4e-01 of their range from those of onednn alone"
    assert not comparison.programs[OURS].reason
    (remark,) = [text for text in _remarks(ProgramComparison(OURS, (), first_call=call)) if "differ" in text]
    assert remark.startswith("with batch 6, which is no sample, the results of the program differ by 4e-01")


@pytest.mark.parametrize("found", [{"ours": "no"}, {"ours": "no", "other": "neither"}])
def test_a_model_that_does_not_take_the_sizes_is_not_told(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, str]
) -> None:
    winner, call, comparison = compared(monkeypatch, **found)
    assert (winner, call) == (OURS, None)
    assert not any(program.reason for program in comparison.programs.values())


def test_a_program_without_company_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    winner, call, _ = compared(monkeypatch, ours=0.5)
    assert winner == OURS and call == CALL


def test_results_of_other_shapes_or_other_infinities_are_apart() -> None:
    one = np.array([1.0, np.inf])
    assert most_apart([one], [one]) == 0.0
    assert most_apart([one], [np.array([1.0, 2.0])]) == float("inf")
    assert most_apart([one], [np.ones(3)]) == float("inf")
    assert most_apart([np.array([3.0, 4.0])], [np.array([3.0, 5.0])]) == pytest.approx(0.2)
