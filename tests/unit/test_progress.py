"""What is shown of the progress where standard error is not a terminal, and of the comparison of programs."""

from __future__ import annotations

import sys
import time
from functools import partial
from io import StringIO

import pytest
from rich.console import Console
from rich.progress import Progress

from unity_collage import progress
from unity_collage.plan.comparison import ProgramComparison, ProgramTimes
from unity_collage.report import comparison_line

PROGRAMS = (
    ProgramTimes("collage", 1e-3),
    ProgramTimes("tvm", 1.5e-3),
    ProgramTimes("greedy", reason="not built: its kernels cost 2 times as much"),
)


def test_the_first_line_comes_at_once_and_others_while_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0.02)
    with progress.shown("loading", since=time.monotonic() - 7) as report:
        assert capsys.readouterr().err == "[  7 s] loading\n"
        report(3, 12, "measuring relu")
        time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and set(lines) == {"[  7 s] 3 of 12: measuring relu"}


def test_the_clock_of_a_terminal_goes_on_behind_the_last_step_of_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Progress] = []
    monkeypatch.setattr(
        progress, "Progress", lambda *args, **named: made.append(Progress(*args, **named)) or made[0]
    )
    with progress._bar(Console(file=StringIO(), force_terminal=True), "loading") as report:
        (task,) = made[0].tasks
        report(3, 3, "measuring relu")
        report(3, 3, "")
        assert (task.total, task.finished, task.description) == (3, False, "measuring relu")
        report(0, 0, "timing whole programs in turns")
        assert (task.total, task.finished, task.description) == (
            None,
            False,
            "timing whole programs in turns",
        )


def test_brackets_in_a_label_are_no_markup() -> None:
    file = StringIO()
    with progress._bar(Console(file=file, force_terminal=True, width=120), "loading") as report:
        report(1, 2, "measuring concat [/x] [2,3]")
    assert "measuring concat [/x] [2,3]" in file.getvalue()


class Notebook:
    """What this package uses of ``IPython.display``: each text that a cell shows, in order."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def HTML(self, text: str) -> str:
        return text

    def display(self, text: str, *, display_id: bool) -> Notebook:
        assert display_id
        self.update(text)
        return self

    def update(self, text: str) -> None:
        self.shown.append(text)


def test_a_notebook_shows_a_bar_that_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    monkeypatch.setattr(progress, "Console", partial(Console, force_jupyter=True))
    monkeypatch.setattr(progress, "_UPDATE_SECONDS", 0.0)
    with progress.shown("loading") as report:
        report(3, 12, "measuring a<b")
        report(0, 0, "")
    assert notebook.shown == [
        "<progress></progress> loading",
        '<progress value="3" max="12"></progress> 3 of 12: measuring a&lt;b',
        "<progress></progress> loading",
        "",
    ]
    assert capsys.readouterr() == ("", "")


def test_a_notebook_shows_few_kernels_of_many_and_every_other_step(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    monkeypatch.setattr(progress, "_UPDATE_SECONDS", 60.0)
    with progress._element("loading") as report:
        for number in range(9):
            report(number, 9, "measuring relu")
        report(0, 0, "timing whole programs in turns")
    assert [text.rpartition("> ")[2] for text in notebook.shown] == [
        "loading", "0 of 9: measuring relu", "timing whole programs in turns", ""
    ]  # fmt: skip


def test_a_comparison_in_one_line_says_by_how_much_and_what_was_left_out() -> None:
    assert comparison_line(ProgramComparison("collage", PROGRAMS)) == (
        "collage is the fastest program: tvm 1.50x; "
        "not timed: greedy (not built: its kernels cost 2 times as much)"
    )


def test_a_program_that_another_one_seemed_to_beat_is_not_called_the_fastest() -> None:
    programs = tuple(
        ProgramTimes(name, seconds) for name, seconds in (("collage", 2e-3), ("openblas", 1.6e-3))
    )
    assert comparison_line(ProgramComparison("collage", programs)) == (
        "collage is chosen, no other program is surely faster: openblas 0.80x"
    )


def test_a_comparison_of_another_day_has_its_date_and_a_busy_one_its_load() -> None:
    known = ProgramComparison(
        "collage", PROGRAMS[:2], origin="database", created=86_400.0 * 365.5, others=1.25
    )
    assert comparison_line(known) == (
        "collage is the fastest program on 1971-01-01: tvm 1.50x; others kept 1.2 cores busy meanwhile"
    )
