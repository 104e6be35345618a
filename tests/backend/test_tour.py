"""The notebook of examples/: it is stored as it ran, and runs here as a new reader would run it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOUR = ROOT / "examples" / "tour.ipynb"

REQUIRED = "COLLAGE_REQUIRE_NOTEBOOK"
"""Where this is set the notebook must run: a missing package is a failure."""


def cells(path: Path) -> list[dict[str, Any]]:
    """The cells of code."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def html_of(cell: dict[str, Any]) -> str:
    return "".join(text for output in cell["outputs"] for text in output.get("data", {}).get("text/html", ()))


def check(path: Path) -> None:
    """What a reader finds in the outputs."""
    found = cells(path)
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
    assert not [output for cell in found for output in cell["outputs"] if output["output_type"] == "error"]
    shown = [html_of(cell) for cell in found]
    for first_line, words in {
        "import tempfile": "returns &#x27;scores&#x27;: float32 (1, 10)",
        "uc.show(program.mod)": "shapes",
        "uc.show(program.explanation)": "runner-up",
        "alone = ": "TVM alone",
        "uc.show(program.profile": "of limit",
    }.items():
        own = [
            text for cell, text in zip(found, shown, strict=True) if cell["source"][0].startswith(first_line)
        ]
        assert len(own) == 1 and words in own[0], first_line
    assert found[-1]["outputs"][0]["data"]["text/plain"] == ["True"]


def test_the_notebook_is_stored_as_it_ran_with_small_outputs() -> None:
    check(TOUR)
    assert TOUR.stat().st_size < 120_000
    assert "<progress" not in TOUR.read_text(encoding="utf-8")


@pytest.mark.alone
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = next((name for name in ("nbclient", "ipykernel") if find_spec(name) is None), None)
    if missing is not None:
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(
            f"{missing} is missing: pip install '.[docs]'"
        )
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts")])
    import run_notebook

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copy = tmp_path / TOUR.name
    shutil.copyfile(TOUR, copy)
    assert run_notebook.main(copy) is None
    check(copy)
