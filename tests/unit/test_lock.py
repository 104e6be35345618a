"""requirements/tested.txt has a version of every dependency, and one that pyproject.toml allows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
LOCKED = {
    re.sub(r"[-_.]+", "-", name).lower(): version
    for name, version in re.findall(
        r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / "tested.txt").read_text(), re.MULTILINE
    )
}


def requirements() -> list[Requirement]:
    """The dependencies of the package itself."""
    text = PROJECT.partition("\ndependencies = [")[2].partition("\n]")[0]
    return [Requirement(each) for each in re.findall(r'^  "([^"]+)"', text, re.MULTILINE)]


def test_there_are_dependencies() -> None:
    assert len(requirements()) > 10


@pytest.mark.parametrize("wanted", requirements(), ids=str)
def test_a_dependency_has_a_tested_version(wanted: Requirement) -> None:
    version = LOCKED[re.sub(r"[-_.]+", "-", wanted.name).lower()]
    assert wanted.specifier.contains(version, prereleases=True), "run make lock"
