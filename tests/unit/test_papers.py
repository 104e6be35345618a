"""docs/papers.md names tests and documents that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "papers.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)
LINKS = re.findall(r"\]\((?!https?:)([\w./]+)(?:#[\w-]+)?\)", TEXT)


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_there_are_names_to_check() -> None:
    assert len(NAMED) > 50 and len(LINKS) > 5


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_named_test_exists(file: str, test: str) -> None:
    path = ROOT / file
    assert path.is_file(), f"there is no {file}"
    assert not test or test in functions_of(path), f"{file} has no {test}"


@pytest.mark.parametrize("link", LINKS)
def test_a_linked_document_exists(link: str) -> None:
    assert (PAGE.parent / link).exists(), link
