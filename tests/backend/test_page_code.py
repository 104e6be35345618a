"""The code of the documents, run as a reader would run it: block by block, from the top of the page.

A block under ``<!-- not run: REASON -->`` is left out. Blocks of Python share one process; those of bash are run in
between. Where a page names a large network, a small one stands in for it under the same name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import documents
import page_commands
import page_models
import pytest
from documents import ROOT, Block, blocks_of
from pages import LONG, PAGES

HERE = Path(__file__).parent
IMPORTED = ("", "installed", "examples/backend")
"""Folders of a page from which Python imports."""

OPTIONAL = ("openvino", "cmake")
"""What few people have: where it is missing, the lines of bash that name it are left out."""

COMMANDS = {
    "python": f"""#!/bin/sh
exec {sys.executable} "$@"
""",
    # Nothing is downloaded: what is installed is enough, and a package of the repository goes into the page's folder.
    "pip": f"""#!/bin/sh
case "$2" in
  ./*) exec {sys.executable} -m pip install -q --no-index --no-deps --no-build-isolation --target installed "$2" ;;
  *) exec {sys.executable} -m pip "$@" -q --no-index ;;
esac
""",
}
"""Commands by name, besides ``unity-collage``: those of this environment, whether it is active or not."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of the process that runs commands. Costs are in its folder, and no others play a part."""
    socket = tmp_path_factory.mktemp("cache") / "socket"
    running = subprocess.Popen([sys.executable, str(HERE / "page_commands.py"), str(socket)])
    while not socket.exists():
        assert running.poll() is None
        time.sleep(0.1)
    yield socket
    running.terminate()
    running.wait()


def is_there(name: str) -> bool:
    return find_spec(name) is not None or shutil.which(name) is not None


def runnable(text: str) -> str:
    """The commands of a block for which everything is there."""
    missing = [name for name in OPTIONAL if not is_there(name)]
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not any(name in line for name in missing))


def script_of(blocks: list[Block], given: str) -> str:
    """A Python program that runs ``given`` and then ``blocks``; an error names the line of the page.

    Without bash it is plain text with the lines of the page: TVMScript reads its source from the file.
    """
    blocks = [block for block in blocks if block.is_run and block.file is None]
    if not any(block.language == "bash" for block in blocks):
        text = f"import page_commands; page_commands.doubt_nothing(); exec({given!r})"
        for block in blocks:
            text += "\n" * (block.line - 1 - text.count("\n")) + block.text
        return text
    lines = [
        "import subprocess, page_commands",
        "page_commands.doubt_nothing()",
        "def bash(text):",
        "    subprocess.run(['bash', '-euo', 'pipefail', '-c', text], check=True)",
        f"exec({given!r})",
    ]
    for block in blocks:
        if block.language == "python":
            padded = "\n" * (block.line - 1) + block.text
            lines.append(f"exec(compile({padded!r}, {block.page!r}, 'exec'))")
        else:
            lines.append(f"bash({runnable(block.text)!r})")
    return "\n".join(lines)


def test_every_page_with_code_is_run() -> None:
    with_code = {page for page in documents.PAGES if any(block.is_run for block in blocks_of(page))}
    assert with_code == set(PAGES)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in PAGES]
)
def test_the_code_of_a_page_runs(name: str, server: Path, tmp_path: Path) -> None:
    page, blocks = PAGES[name], blocks_of(name)
    for need in page.needs:
        if not is_there(need):
            pytest.skip(f"{need} is not installed")
    commands, folder = tmp_path / "commands", tmp_path / "work"
    commands.mkdir()
    client = page_commands.CLIENT.replace("SOCKET", repr(str(server)))
    for command, text in {**COMMANDS, "unity-collage": client}.items():
        (commands / command).write_text(text)
        (commands / command).chmod(0o755)
    shutil.copytree(ROOT / "examples", folder / "examples")
    for model in page.models:
        page_models.write(model, folder)
    for block in blocks:
        if block.file is not None:
            (folder / block.file).write_text(block.text)
    script = folder / "page.py"
    script.write_text(script_of(blocks, page.given))
    imported = [str(folder / each) for each in IMPORTED]
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(server.parent),
        "PATH": os.pathsep.join([str(commands), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([*imported, str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
