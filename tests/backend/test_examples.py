"""Each example runs as a newcomer would run it, and prints what it promises."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import unity_collage as uc

EXAMPLES = Path(__file__).parents[2] / "examples"

RUNS = {
    "devices.py": (
        [],
        ["devices: cpu:0, cpu:1", "'x': float32 (8, 64) on cpu:0", "on cpu:1", "scores are on cpu:1",
         "numbers agree with numpy", "loaded on cpu:0, cpu:1 with the same numbers"],
    ),
    "gpt2.py": (
        ["--layers", "1", "--width", "48", "--vocabulary", "50", "--prompt", "9", "--tokens", "12"],
        ["unity_collage: ", "prompt of 9 tokens in ", " tokens/s"],
    ),
    "metaschedule.py": (
        [],
        ["to be tuned: ", "tuned: ", "kernels with a tuned schedule: ", "numbers agree with numpy"],
    ),
    "mnist.py": (
        [],
        ["# ---- after collage.Prepare", "# ---- after collage.AnnotateCandidates", '"collage.candidates"',
         "# ---- after collage.EstimateNeededCosts", '"collage.costs"', "# ---- after collage.SearchPartition",
         '"collage.plan"', "# ---- after collage.OffloadBYOC", "# ---- after collage.FuseRemaining", "scores: [["],
    ),
    "onnx_model.py": (["mnist_mlp"], ["main: ", "output (1, 10), median ", "loaded, same numbers"]),
    "pytorch.py": ([], ["main: ", "labels (1, 12, 7) agree with eager", "torch.compile agrees with eager"]),
    "rpc.py": ([], ["measured by 'board': ", "asked again: all from the database", "numbers agree with numpy"]),
    "sequential.py": ([], ["struck out: ", "# ---- the plan", "numbers agree with numpy"]),
}  # fmt: skip
"""Arguments, and what is printed in this order."""


LONG = frozenset(("gpt2.py", "metaschedule.py", "rpc.py"))
"""Examples that are left to ``make check-pages``: each takes from 30 to 50 seconds."""


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_an_example_names_what_there_is(name: str) -> None:
    for node in ast.walk(ast.parse((EXAMPLES / name).read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "uc":
            assert hasattr(uc, node.attr), f"line {node.lineno}: uc.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unity_collage"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                found = hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}")
                assert found, f"line {node.lineno}: {alias.name} in {node.module}"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Costs of the examples: what other runs have measured on this machine plays no part."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in RUNS]
)
def test_an_example_prints_what_it_promises(name: str, cache: Path, tmp_path: Path) -> None:
    arguments, promised = RUNS[name]
    if name == "pytorch.py":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "COLUMNS": "80"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert all(re.fullmatch(r"\[ *\d+ s\] .+", line) for line in lines), result.stderr
    assert bool(lines) == (name == "onnx_model.py"), "a newcomer's first compile says what it does"
    places = [result.stdout.find(text) for text in promised]
    assert -1 not in places, f"{promised[places.index(-1)]!r} is missing in:\n{result.stdout}"
    assert places == sorted(places)
