"""The map of the source names files and functions that exist, and every package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "unity_collage"
TEXT = (ROOT / "docs" / "architecture.md").read_text()


def named(pattern: str) -> list[str]:
    return sorted(set(re.findall(pattern, TEXT)))


def definitions(path: Path) -> set[str]:
    """The names of functions and classes in a file, those of methods behind their class."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("place", named(r"`([\w/]+\.py:[\w.]+)`"))
def test_an_answer_is_a_function_of_that_file(place: str) -> None:
    path, name = place.split(":")
    assert name in definitions(PACKAGE / path)


@pytest.mark.parametrize("path", named(r"`([\w/]+\.(?:py|cc))(?::[\w.]+)?`"))
def test_a_file_that_is_named_exists(path: str) -> None:
    assert (PACKAGE / path).is_file()


def test_every_package_and_loose_file_is_in_the_tree() -> None:
    table = TEXT.partition("## The tree")[2].partition("## The path")[0]
    told = {name.rpartition("/")[2] for name in re.findall(r"`([\w./]+)`", table)}
    there = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("_")}
    there |= {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("_")}
    assert there - told == set()


def test_the_tree_names_the_layers_in_the_order_of_the_contract() -> None:
    """Where a contract lets two packages be neighbours, either may come first."""
    contract = (ROOT / "pyproject.toml").read_text().partition("layers = [")[2].partition("]")[0]
    levels = {name: n for n, line in enumerate(contract.splitlines()) for name in re.findall(r"\w+", line)}
    table = TEXT.partition("## The tree")[2].partition("## The path")[0]
    rows = [
        re.findall(r"`(\w+)(?:\.py)?`", line.split("|")[1])
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    order = [levels[name] for row in rows for name in row]
    assert order == sorted(order)


def test_ten_questions_are_answered() -> None:
    answers = TEXT.partition("## Ten questions")[2]
    assert answers.count("?") == 10
