"""The list of versions of the documentation."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "versioned_site.py"
NAMES: dict[str, Any] = runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(
    ("there", "versions", "latest"),
    [
        (["0.2.0", "0.10.0", "0.9.1"], ["0.10.0", "0.9.1", "0.2.0"], "0.10.0"),
        (["0.3.0rc1", "0.2.0", "0.3.0a2"], ["0.3.0rc1", "0.3.0a2", "0.2.0"], "0.2.0"),
        (["0.3.0rc1", "0.3.0"], ["0.3.0", "0.3.0rc1"], "0.3.0"),
        (["0.1.0rc1", "assets"], ["0.1.0rc1"], "0.1.0rc1"),
    ],
)
def test_the_newest_release_is_the_latest(
    there: list[str], versions: list[str], latest: str, tmp_path: Path
) -> None:
    for name in there:
        (tmp_path / name).mkdir()
    assert NAMES["write_index"](tmp_path) == versions
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [each["version"] for each in listed] == versions
    assert [each["version"] for each in listed if each["aliases"] == ["latest"]] == [latest]
    assert f'url={latest}/"' in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize("arguments", [[], ["0.2", "sites"], ["../x", "sites"], ["0.2.0"]])
def test_what_is_no_version_is_refused(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2 and done.stderr.startswith("usage:")
    assert not list(tmp_path.iterdir())
