"""A stored comparison that left out programs for want of time."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from unity_collage.feedback.refine import _known_winner
from unity_collage.feedback.settings import BY_DEFAULT, Refinement
from unity_collage.plan.comparison import Denormals, FirstCall, ProgramComparison
from unity_collage.plan.encoding import encode

BUILDER: Any = SimpleNamespace(whole_models={}, stock=lambda: ("module", "executable"))
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
    found = _known_winner(BUILDER, records(left_out, locked), settings)
    assert (found is not None) == is_known
    assert found is None or found.executable == "executable"


@pytest.mark.parametrize(("later", "remarks"), [(2e-3, 1), (30e-3, 0)])
def test_its_first_call_with_new_sizes_is_told_if_it_takes_longer(later: float, remarks: int) -> None:
    call = FirstCall({"batch": 6, "length": 48}, 31.25e-3, later, kernels=7, compiling=24e-3)
    known = {"report": encode(ProgramComparison("TVM", (), first_call=call)), "choice": None}
    found = _known_winner(BUILDER, records_with(known), BY_DEFAULT)
    assert found is not None and found.report is not None and found.report.first_call == call
    assert len(found.remarks) == remarks
    for remark in found.remarks:
        assert "with batch 6, length 48 it took 31.2 ms, later calls 2 ms; " in remark
        assert remark.endswith("libraries compiled 7 of its kernels then, in 24 ms")


@pytest.mark.parametrize(("flushed", "remarks"), [(7.2e-3, 1), (22e-3, 0)])
def test_denormal_numbers_are_told_if_they_make_it_slow(flushed: float, remarks: int) -> None:
    report = ProgramComparison("TVM", (), denormals=Denormals(22.8e-3, flushed))
    found = _known_winner(BUILDER, records_with({"report": encode(report), "choice": None}), BY_DEFAULT)
    assert found is not None and len(found.remarks) == remarks
    for remark in found.remarks:
        assert "our program takes 22.8 ms, and 7.2 ms where they count as zero" in remark
