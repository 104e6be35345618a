"""Which of several programs wins on a busy machine, and where one of them fails while it runs in turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from unity_collage.feedback import comparison
from unity_collage.feedback.candidates import OURS
from unity_collage.feedback.comparison import CandidateProgram, Comparison, winner_of
from unity_collage.feedback.settings import Refinement

THEIRS = "runtime, the whole model"


def finished(monkeypatch: pytest.MonkeyPatch, cost: float, busy: bool, **seconds: float) -> tuple[str, Any]:
    """The winner and the report, where our kernels cost ``cost`` seconds."""
    monkeypatch.setattr(comparison, "samples_of", lambda _: [])
    monkeypatch.setattr(comparison, "why_not_exceptional", lambda _: None)
    monkeypatch.setattr(comparison.PLAN, "read", lambda _: SimpleNamespace(seconds=cost))
    mod = {"main": "the function with the plan"}
    builder: Any = SimpleNamespace(whole_models={THEIRS: None}, imported=None)
    worker: Any = SimpleNamespace(
        timed_in_turns=lambda names, rounds, _: {name: [times[name]] * rounds for name in names},
        lost=lambda *_: [],
    )
    times = {OURS: seconds["ours"], THEIRS: seconds["theirs"]}
    programs = {
        OURS: CandidateProgram({"main": (1,)}, (mod, "ours")),  # type: ignore[arg-type]
        THEIRS: CandidateProgram(None, (mod, "theirs")),  # type: ignore[arg-type]
    }
    compared = Comparison(builder, Refinement(rounds=5), worker, lambda _: None, programs)
    winner = compared.finish(lambda: busy)
    return winner, compared.result(winner).report


@pytest.mark.parametrize(
    ("busy", "theirs", "winner"),
    [(False, 0.03, THEIRS), (True, 0.03, OURS), (True, 0.01, THEIRS), (False, 0.05, OURS)],
)
def test_another_runtime_has_to_beat_our_costs_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, busy: bool, theirs: float, winner: str
) -> None:
    assert finished(monkeypatch, 0.014, busy, ours=0.045, theirs=theirs)[0] == winner


def test_the_time_of_another_runtime_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    report = finished(monkeypatch, 0.014, False, ours=0.045, theirs=0.03)[1]
    assert (report.winner, report.predicted, report.measured) == (THEIRS, None, 0.03)


def test_programs_run_in_turns_again_without_one_that_fails() -> None:
    """Times that were taken one after the other say more about the machine than about the programs."""

    def in_turns(names: list[str], *_: Any) -> Any:
        if "broken" in names:
            return "it crashes"
        return {name: [0.04 if name == OURS else 0.05 if len(names) > 1 else 0.03] for name in names}

    worker: Any = SimpleNamespace(timed_in_turns=in_turns)
    builder: Any = SimpleNamespace(whole_models={}, imported=None)
    programs = {name: CandidateProgram(None) for name in (OURS, "broken", THEIRS)}
    compared = Comparison(builder, Refinement(rounds=1), worker, lambda _: None, programs)
    assert compared.timed(list(programs), 1) == {OURS: [0.04], THEIRS: [0.05]}
    assert [name for name, program in programs.items() if program.reason] == ["broken"]


def test_programs_that_are_timed_alone_have_equally_many_rounds() -> None:
    """Where one fails in turns with the others, each is timed alone, and one that takes long has fewer rounds."""
    alone: dict[str, Any] = {OURS: [0.04] * 5, THEIRS: [9.0] * 2, "broken": "it crashes"}

    def in_turns(names: list[str], *_: Any) -> Any:
        if len(names) > 1:
            return "one of them crashed"
        seconds = alone[names[0]]
        return seconds if isinstance(seconds, str) else {names[0]: seconds}

    worker: Any = SimpleNamespace(timed_in_turns=in_turns)
    builder: Any = SimpleNamespace(whole_models={}, imported=None)
    programs = {name: CandidateProgram(None) for name in alone}
    compared = Comparison(builder, Refinement(rounds=5), worker, lambda _: None, programs)
    found = compared.timed(list(alone), 5)
    assert found == {OURS: [0.04] * 2, THEIRS: [9.0] * 2}
    assert programs["broken"].reason == "it crashes"
    assert winner_of(found, 0.01) == OURS


def test_a_time_limit_of_the_user_ends_the_comparison() -> None:
    """A signal handler may raise TimeoutError while a program is built. That is no fault of the program."""

    def build() -> Any:
        raise TimeoutError("of the user")

    builder: Any = SimpleNamespace(whole_models={}, imported=None)
    compared = Comparison(builder, Refinement(), SimpleNamespace(), lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError, match="of the user"):
        compared.add_built(OURS, {"main": (1,)}, build)
