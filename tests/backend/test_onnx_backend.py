"""A sample of the onnx package's backend suite through ``compile``; benchmarks/onnx_backend.py runs all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx_suite.cases import Case, cases, why_excluded
from onnx_suite.verdict import CRASHED, PASSED, WRONG, verdict

from unity_collage.database.costs import CostDatabase
from unity_collage.measure.measured import MeasuredCost

_EVERY = 71
"""A prime, so that the sample does not follow the order of the operators' variants."""


_PACKED = re.compile(r"tensors of u?int[24] are not supported")
"""Relax has no tensors whose elements share a byte."""


def sample() -> list[Case]:
    """Every 71st small case; the networks of the suite take too long for tests."""
    return [case for case in cases() if case.kind != "real"][::_EVERY]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredCost]:
    path: Path = tmp_path_factory.mktemp("suite") / "costs.sqlite"
    with CostDatabase(path) as database, MeasuredCost(database) as made:
        yield made


@pytest.fixture(autouse=True)
def contract() -> None:
    """Without the contract's instrument: TVM's script of some graphs with computed sizes does not parse back."""


@pytest.mark.parametrize("case", sample(), ids=lambda case: case.name.removeprefix("test_"))
def test_a_case_of_the_suite(case: Case, model: MeasuredCost) -> None:
    found = verdict(case, model)
    assert found.outcome not in (WRONG, CRASHED), found.reason
    assert found.outcome == PASSED or why_excluded(case) or _PACKED.search(found.reason), found.reason
