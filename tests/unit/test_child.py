"""Our own processes start without PyTorch, and whoever needs it can import it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from unity_collage.processes.child import Child

_MODULE = """
import sys
print(__name__, sys.argv[1:], "tvm" in sys.modules, "torch" in sys.modules)
if "torch" in sys.argv:
    import torch
    print(torch.nn.Module.__name__)
"""


def started(folder: Path, *arguments: str) -> list[str]:
    (folder / "said.py").write_text(_MODULE)
    command = [sys.executable, "-m", "unity_collage.processes.launcher", "said", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    return done.stdout.splitlines()


def test_a_module_runs_as_the_program_with_its_arguments(tmp_path: Path) -> None:
    assert started(tmp_path, "7") == ["__main__ ['7'] True False"]


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_it_can_be_imported_later(tmp_path: Path) -> None:
    assert started(tmp_path, "torch")[-1] == "Module"


class _Interrupted:
    """A process whose answer is interrupted by Ctrl-C."""

    def __init__(self) -> None:
        self.closed = False
        self.is_silent = True

    def send(self, message: object) -> None: ...

    def receive(self, _seconds: float) -> None:
        raise KeyboardInterrupt

    def close(self) -> None:
        self.closed = True


def test_ctrl_c_ends_the_process_so_that_no_stale_answer_is_read() -> None:
    child, process = Child("no.module", {}, 1.0), _Interrupted()
    child._process, child._is_ready = process, True  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        child.ask({"ask": "anything"})
    assert process.closed and not child.is_running
