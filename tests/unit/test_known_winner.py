"""A stored comparison that left out programs for want of time."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from unity_collage.feedback.refine import _known_winner
from unity_collage.feedback.settings import BY_DEFAULT, Refinement
from unity_collage.plan.comparison import ProgramComparison
from unity_collage.plan.encoding import encode

BUILDER: Any = SimpleNamespace(whole_models={}, stock=lambda: ("module", "executable"))
UNLIMITED = replace(BY_DEFAULT, build_seconds=math.inf)


def records(left_out: bool, locked: bool) -> Any:
    known = {"report": encode(ProgramComparison("TVM", ())), "choice": None, "left_out": left_out}
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
