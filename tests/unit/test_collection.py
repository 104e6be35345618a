"""What pytest collects of these tests."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    """pytest's default list of folders to pass over has ``build``."""
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    assert {"backend", "browser", "build", "gpu", "unit"} <= {folder.parts[0] for folder in folders}
    patterns = pytestconfig.getini("norecursedirs")
    parts = {part for folder in folders for part in folder.parts}
    assert not {(part, pattern) for part in parts for pattern in patterns if fnmatch(part, pattern)}
