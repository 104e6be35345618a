"""A sample of the onnx package's backend suite through ``compile``; benchmarks/onnx_backend.py runs all of it."""

from __future__ import annotations

import re

import pytest
from compiled import DrawnCost
from onnx_suite.cases import Case, cases, why_excluded
from onnx_suite.verdict import CRASHED, PASSED, WRONG, verdict

COUNT = 30
"""How many cases are tried, spread evenly over the suite."""

_PACKED = re.compile(r"tensors of u?int[24] are not supported")
"""Relax has no tensors whose elements share a byte."""


@pytest.fixture(scope="module")
def suite() -> list[Case]:
    """The small cases; the networks of the suite take too long for tests. To make the cases takes seconds."""
    return [case for case in cases() if case.kind != "real"]


@pytest.fixture(autouse=True)
def contract() -> None:
    """Without the contract's instrument: TVM's script of some graphs with computed sizes does not parse back."""


@pytest.mark.parametrize("number", range(COUNT))
def test_a_case_of_the_suite(number: int, suite: list[Case]) -> None:
    case = suite[number * len(suite) // COUNT]
    found = verdict(case, DrawnCost("suite"))
    assert found.outcome not in (WRONG, CRASHED), f"{case.name}: {found.reason}"
    assert found.outcome == PASSED or why_excluded(case) or _PACKED.search(found.reason), (
        f"{case.name}: {found.reason}"
    )
