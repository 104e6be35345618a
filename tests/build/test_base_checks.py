"""Checks of the runtime's base that need C++."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "unity_collage" / "runtime" / "src"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("checks") / "checks"
    base = (str(SOURCES / "base" / f"{name}.cc") for name in ("aligned_buffer", "team", "workspace"))
    sources = [str(HERE / "base_checks.cc"), *base]
    command = ["g++", "-std=c++17", "-O1", "-pthread", f"-I{SOURCES}", *sources, "-o", str(program)]
    subprocess.run(command, check=True)
    return program


@pytest.mark.parametrize(
    "name", ["few callers", "many callers", "no more threads", "a share throws", "workspaces"]
)
def test_the_base(checks: Path, name: str) -> None:
    assert subprocess.run([checks, name], timeout=60, check=False).returncode == 0
