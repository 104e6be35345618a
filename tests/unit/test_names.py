"""Names: a public class of the package can be spoken of without its module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import unity_collage

PACKAGE = Path(unity_collage.__file__).parent


def public_classes(source: str) -> Iterator[str]:
    """The names of the classes that ``source`` defines, without private ones."""
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    yield from (node.name for node in classes if not node.name.startswith("_"))


def test_no_two_public_classes_have_one_name() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in public_classes(path.read_text(encoding="utf-8")):
            modules[name].append(str(path.relative_to(PACKAGE)))
    assert len(modules) > 100
    assert {name: where for name, where in modules.items() if len(where) > 1} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class A: ...", ["A"]),
        ("class A:\n    class B: ...", ["A", "B"]),
        ("class _A: ...\nA = int", []),
        ("def f():\n    class A: ...", ["A"]),
    ],
    ids=["a class", "a class inside", "a private class and an alias", "a class of a function"],
)
def test_what_a_public_class_is(source: str, names: list[str]) -> None:
    assert list(public_classes(source)) == names
