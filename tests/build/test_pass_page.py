"""docs/passes.md is what running the passes gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unity_collage.backends.registry import known

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_running_the_passes_gives() -> None:
    if (reason := known()["onednn"].why_unavailable()) is not None:
        pytest.skip(reason)
    command = [sys.executable, str(ROOT / "scripts" / "pass_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 0, f"run python scripts/pass_page.py\n{done.stderr}"


def test_a_page_that_differs_is_found(tmp_path: Path) -> None:
    source = (ROOT / "scripts" / "pass_page.py").read_text()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "scripts" / "pass_page.py").write_text(source)
    (tmp_path / "docs" / "passes.md").write_text("another page")
    command = [sys.executable, str(tmp_path / "scripts" / "pass_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 1, done.stderr
