"""The code of some documents, run as a reader would run it: block by block, from the top of the page.

A block under ``<!-- not run: REASON -->`` is left out. Blocks of Python share one process; those of bash are run in
between.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from documents import ROOT, Block, blocks_of

PAGES = {
    "docs/first_model.md": ("torch", "onnxruntime"),
    "docs/deploy.md": ("g++",),
    "docs/bisect.md": ("onnxruntime",),
    "docs/devices.md": (),
}
"""Pages, and the modules and commands that they need and not everybody has."""

COMMANDS = {
    "python": f"""#!/bin/sh
exec {sys.executable} "$@"
""",
    "unity-collage": f"""#!{sys.executable}
import sys
from unity_collage.cli import command
sys.exit(command())
""",
}
"""Commands by name: those of this environment, whether it is active or not."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Costs of these pages: what other runs have measured on this machine plays no part."""
    return tmp_path_factory.mktemp("cache")


def script_of(blocks: list[Block]) -> str:
    """A Python program that runs ``blocks``; an error names the line of the page.

    Without bash it is plain text with the lines of the page: TVMScript reads its source from the file.
    """
    python = [block for block in blocks if block.reason is None and block.language == "python"]
    if not any(block.reason is None and block.language == "bash" for block in blocks):
        text = ""
        for block in python:
            text += "\n" * (block.line - 1 - text.count("\n")) + block.text
        return text
    lines = [
        "import subprocess",
        "def bash(text):",
        "    subprocess.run(['bash', '-euo', 'pipefail', '-c', text], check=True)",
    ]
    for block in blocks:
        if block.reason is None and block.language == "python":
            padded = "\n" * (block.line - 1) + block.text
            lines.append(f"exec(compile({padded!r}, {block.page!r}, 'exec'))")
        if block.reason is None and block.language == "bash":
            lines.append(f"bash({block.text!r})")
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, cache: Path, tmp_path: Path) -> None:
    for name in PAGES[page]:
        if find_spec(name) is None and shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, text in COMMANDS.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PATH": f"{commands}:{os.environ['PATH']}"}
    script = folder / "page.py"
    script.write_text(script_of(blocks_of(page)))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
