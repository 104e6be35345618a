"""docs/backends.md is what the rules of the backends answer."""

from __future__ import annotations

import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from unity_collage.backends.registry import known
from unity_collage.runtime import torch_calls

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "backends.md").read_text()
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "backend_page.py"))


@pytest.mark.skipif(torch_calls.is_missing(), reason=torch_calls.MISSING)
def test_the_page_is_what_the_rules_answer() -> None:
    assert SCRIPT["page"]() == PAGE, "run python scripts/backend_page.py"


def test_it_names_each_backend_and_each_operator_that_a_rule_names() -> None:
    ours = SCRIPT["ours"]()
    packages = {path.name for path in (ROOT / "unity_collage" / "backends").iterdir() if path.is_dir()}
    assert packages - {"native", "foreign", "__pycache__"} == {*SCRIPT["FOLDERS"]}
    assert re.findall("^## (.*)", PAGE, re.MULTILINE) == ["Operators", *ours]
    assert "nn.conv2d" in SCRIPT["beginnings"](known()["onednn"].rule(SCRIPT["TARGETS"]["llvm"]))
    for name, (backend, _) in ours.items():
        target = SCRIPT["TARGETS"][sorted(backend.kinds)[-1]]
        section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for operator in SCRIPT["beginnings"](backend.rule(target)):
            assert f"\n| `{operator}` |" in PAGE and f"`{operator}`" in section
        parts = re.findall(r"^\* \*(\w+)\*: .*\.$", section, re.MULTILINE)
        assert parts == ["Takes", "Declines", "Needs"], f"the docstring of {name} lacks a part"


@dataclass(frozen=True)
class _Chain:
    anchors: frozenset[str]
    root: str = ""


@dataclass(frozen=True)
class _Outer:
    inner: tuple[_Chain, ...]


@pytest.mark.parametrize(
    ("rule", "operators"),
    [
        (_Outer((_Chain(frozenset({"relax.add"})), _Chain(frozenset(), "relax.divide"))), {"add", "divide"}),
        (_Outer(()), set()),
        (object(), set()),
    ],
)
def test_the_operators_of_a_rule_are_those_of_all_rules_in_it(rule: Any, operators: set[str]) -> None:
    assert SCRIPT["beginnings"](rule) == operators


def test_an_operator_that_is_always_declined_is_told_from_one_that_nobody_asked_about() -> None:
    answers = SCRIPT["Answers"](frozenset({"exp", "log"}), declined={("exp", "it is slow"): "exp float32"})
    assert SCRIPT["_cell"](answers, "exp") == "*declined*"
    assert SCRIPT["_cell"](answers, "log") == "*untried*"
    assert SCRIPT["_cell"](answers, "tanh") == ""
