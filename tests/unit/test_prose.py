"""scripts/prose.py: what of a file is prose, and what is found in it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("prose", ROOT / "scripts" / "prose.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROSE = script()
LONG = " ".join(["word"] * (PROSE.MOST_WORDS + 1))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"Short.\n\n{LONG}.", [3]),
        (f"{LONG[:40]}\n{LONG[40:]}", [1]),
        (f"{LONG[5:]}.", []),
        (f"{LONG[:60]}. {LONG[60:]}.", []),
        (f"* {LONG[:60]}\n* {LONG[60:]}", []),
        (f"| {LONG[:60]} | {LONG[60:]} |", []),
        (f"```\n{LONG}\n```\n\n<!-- {LONG} -->", []),
        (f"`{LONG}` is code, and [a link](of/{LONG.replace(' ', '/')}.md) has a target.", []),
        (f"Versions 0.1 and 0.2 {LONG}", [1]),
    ],
)
def test_long_sentences_of_a_document(text: str, lines: list[int]) -> None:
    assert [line for line, _ in PROSE.long_sentences(PROSE.of_markdown(text))] == lines


def test_docstrings_are_prose_and_code_is_not() -> None:
    text = f'''"""One."""
NAME = "{LONG}"
"""{LONG}."""

def function():
    """Two.

    >>> {LONG}
    {LONG}

    {LONG}.
        {LONG}
    """
    return "{LONG}"  # {LONG}
'''
    assert [line for line, _ in PROSE.long_sentences(PROSE.of_python(text))] == [3, 11]


def test_everything_that_users_read_is_checked() -> None:
    names = {str(path.relative_to(ROOT)) for path in PROSE.everything()}
    assert {"README.md", "docs/costs.md", "changelog.d/README.md", "unity_collage/cli/main.py"} <= names
    assert not names & set(PROSE.LEFT_OUT)


def test_findings_have_their_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("proselint", reason="the extra dev is not installed")
    monkeypatch.setattr(PROSE, "ROOT", tmp_path)
    (tmp_path / "a.md").write_text("# Costs\n\nA plain line.\n")
    (tmp_path / "b.py").write_text(
        '"""Fine."""\n\n\nX = 1\n"""The kernel that is dearer of the the two."""\n'
    )
    (tmp_path / "c.md").write_text("A `dear` name.\n\n* Its price.\n")
    PROSE.register()
    found = [
        str(each) for each in sorted(PROSE.findings([tmp_path / name for name in ("a.md", "b.py", "c.md")]))
    ]
    assert [each.partition(": ")[0] for each in found] == ["b.py:5", "b.py:5", "c.md:3"]
    assert "'dearer': write expensive, costs more (house.words)" in found[0] + found[1]
    assert "'price': write cost, measured" in found[2]
