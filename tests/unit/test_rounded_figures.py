"""Figures are rounded alike for terminals, by Python, and on the page, by JavaScript: a tie goes up."""

from __future__ import annotations

import math

import pytest

from unity_collage.report import duration
from unity_collage.report.cells import size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (836.5e-9, "837 ns"),
        (2.5e-9, "3 ns"),
        (0.0, "0 ns"),
        (1.125, "1.13 s"),
        (10.25, "10.3 s"),
        (100.5, "101 s"),
        (1.124999e-3, "1.12 ms"),
        (math.inf, "inf s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes() -> None:
    assert [size(nbytes) for nbytes in (999, 1_125, 10_250, 2_500_000_000)] == [
        "999 bytes", "1.13 kB", "10.3 kB", "2.50 GB",
    ]  # fmt: skip
