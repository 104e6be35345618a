"""Programs of stored comparisons, and comparisons that left out programs for want of time."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tvm.ir import IRModule

from unity_collage import fastest
from unity_collage.annotations import PLAN
from unity_collage.errors import CollageError, NoPlan
from unity_collage.feedback import refine
from unity_collage.feedback.candidates import OURS, Choice
from unity_collage.feedback.entrants import CORRECTED
from unity_collage.feedback.refine import _known_winner
from unity_collage.feedback.settings import BY_DEFAULT, Refined, Refinement
from unity_collage.plan.comparison import Denormals, FirstCall, ProgramComparison
from unity_collage.plan.encoding import encode
from unity_collage.plan.plan import Plan
from unity_collage.search import Problem
from unity_collage.testing import graphs

BUILDER: Any = SimpleNamespace(
    whole_models={}, stock=lambda: ("module", "executable"), costed=IRModule({"main": graphs.chain()})
)
NONE: Choice = {}
UNLIMITED = replace(BY_DEFAULT, build_seconds=math.inf)


def records(left_out: bool, locked: bool) -> Any:
    known = {"report": encode(ProgramComparison("TVM", ())), "choice": None, "left_out": left_out}
    return records_with(known, locked)


def records_with(known: dict[str, Any], locked: bool = True) -> Any:
    return SimpleNamespace(find=lambda: known, locked=locked)


@pytest.mark.parametrize(
    ("left_out", "settings", "locked", "is_known"),
    [
        (False, UNLIMITED, False, True),
        (True, UNLIMITED, False, False),
        (True, UNLIMITED, True, True),
        (True, BY_DEFAULT, False, True),
    ],
)
def test_it_counts_only_where_time_is_limited(
    left_out: bool, settings: Refinement, locked: bool, is_known: bool
) -> None:
    found = _known_winner(BUILDER, records(left_out, locked), settings, NONE)
    assert (found is not None) == is_known
    assert found is None or found.executable == "executable"


@pytest.mark.parametrize(("later", "remarks"), [(2e-3, 1), (30e-3, 0)])
def test_its_first_call_with_new_sizes_is_told_if_it_takes_longer(later: float, remarks: int) -> None:
    call = FirstCall({"batch": 6, "length": 48}, 31.25e-3, later, kernels=7, compiling=24e-3)
    known = {"report": encode(ProgramComparison("TVM", (), first_call=call)), "choice": None}
    found = _known_winner(BUILDER, records_with(known), BY_DEFAULT, NONE)
    assert found is not None and found.report is not None and found.report.first_call == call
    assert len(found.remarks) == remarks
    for remark in found.remarks:
        assert "with batch 6, length 48 it took 31.2 ms, later calls 2 ms; " in remark
        assert remark.endswith("libraries compiled 7 of its kernels then, in 24 ms")


@pytest.mark.parametrize(("flushed", "remarks"), [(7.2e-3, 1), (22e-3, 0)])
def test_denormal_numbers_are_told_if_they_make_it_slow(flushed: float, remarks: int) -> None:
    report = ProgramComparison("TVM", (), denormals=Denormals(22.8e-3, flushed))
    known = {"report": encode(report), "choice": None}
    found = _known_winner(BUILDER, records_with(known), BY_DEFAULT, NONE)
    assert found is not None and len(found.remarks) == remarks
    for remark in found.remarks:
        assert "our program takes 22.8 ms, and 7.2 ms where they count as zero" in remark


@pytest.mark.parametrize(
    ("winner", "ours", "built"),
    [
        (OURS, {"main": (1,)}, ["searched costed"]),
        (OURS, {"main": (2,)}, [f"{OURS} {{'main': (1,)}}"]),
        (CORRECTED, {"main": (1,)}, [f"{CORRECTED} {{'main': (1,)}}"]),
    ],
    ids=["the same plan", "another plan", "no corrections for these costs"],
)
def test_the_program_that_was_compared_is_built(
    monkeypatch: pytest.MonkeyPatch, winner: str, ours: Choice, built: list[str]
) -> None:
    """A locked compile may find a comparison of other plans than its search finds."""
    monkeypatch.setattr(refine, "choice_of", lambda _costed, choice: choice)
    monkeypatch.setattr(refine, "problems_of", lambda _costed: {})
    builder: Any = SimpleNamespace(
        costed="costed",
        target=nullcontext(),
        whole_models={},
        correct=lambda costed: costed,
        searched=lambda costed: (f"searched {costed}", "executable"),
        chosen=lambda choice, origin: (f"{origin} {choice}", "executable"),
    )
    known = {"report": encode(ProgramComparison(winner, ())), "choice": {"main": (1,)}}
    found = _known_winner(builder, records_with(known), BY_DEFAULT, ours)
    assert found is not None and [found.mod] == built


@pytest.mark.parametrize(("algorithm", "is_scheduled"), [(OURS, True), ("dp", False)])
def test_our_plan_of_before_gets_its_branches_like_that_of_any_other_program(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, is_scheduled: bool
) -> None:
    """The passes behind the search have given them to a program of the search."""
    scheduled: list[IRModule] = []

    def schedule(mod: IRModule) -> IRModule:
        scheduled.append(mod)
        return mod

    monkeypatch.setattr(fastest, "ScheduleBranches", lambda _model: schedule)
    mod = IRModule({"main": PLAN.write(graphs.chain(), Plan((), 1.0, algorithm=algorithm))})
    best: Any = Refined(mod, "executable", ProgramComparison(OURS, ()))  # type: ignore[arg-type]
    pipeline: Any = SimpleNamespace(model=None, explain=False)
    assert fastest._completed(best, pipeline, BUILDER).executable == "executable"
    assert bool(scheduled) == is_scheduled


def test_without_a_plan_the_search_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(_costed: object) -> Any:
        raise NoPlan("no kernel for relax.exp")

    monkeypatch.setattr(refine, "problems_of", lambda _: {"main": Problem(((),), 0, ())})
    builder: Any = SimpleNamespace(costed=None, searched=searched)
    model: Any = None
    with pytest.raises(NoPlan, match=r"no kernel for relax\.exp"):
        refine.refined(builder, model, ("tvm",))


@pytest.mark.parametrize("is_optional", [True, False])
def test_a_program_of_kernels_by_rule_is_not_compared(
    monkeypatch: pytest.MonkeyPatch, is_optional: bool
) -> None:
    """The time for measuring is used up before any kernel of a function has a cost."""
    monkeypatch.setattr(refine, "problems_of", lambda _: {"main": Problem(((),), 0, ())})
    builder: Any = SimpleNamespace(costed=None, searched=lambda _: ("by rule", "executable"))
    model: Any = None
    settings, reason = Refinement(is_optional=is_optional), "the kernels that were measured make no plan"
    if not is_optional:
        with pytest.raises(CollageError, match=f"cannot be compared: {reason}"):
            refine.refined(builder, model, ("tvm",), settings)
        return
    found = refine.refined(builder, model, ("tvm",), settings)
    assert (found.mod, found.remarks) == ("by rule", (f"programs were not compared: {reason}",))
