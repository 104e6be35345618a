"""Our own processes start without PyTorch, and whoever needs it can import it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from unity_collage.cost.method import Method
from unity_collage.measure import client
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


class _Stopped(Exception):
    """What a signal handler of a user raises."""


class _Interrupted:
    """A process whose answer is interrupted."""

    def __init__(self, error: type[BaseException]) -> None:
        self.closed = False
        self.is_silent = True
        self._error = error

    def send(self, message: object) -> None: ...

    def receive(self, _seconds: float) -> None:
        raise self._error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, _Stopped, TimeoutError])
def test_an_interruption_ends_the_process_so_that_no_stale_answer_is_read(error: type[BaseException]) -> None:
    child, process = Child("no.module", {}, 1.0), _Interrupted(error)
    child._process, child._is_ready = process, True  # type: ignore[assignment]
    with pytest.raises(error):
        child.ask({"ask": "anything"})
    assert process.closed and not child.is_running


class _Answering(_Interrupted):
    """A process that has sent two costs."""

    def receive(self, _seconds: float) -> dict[str, Any]:
        return {"key": "tvm:1", "seconds": 1e-6, "low": 1e-6, "high": 1e-6, "runs": 9, "doubtful": False}


def test_an_interruption_between_two_answers_ends_the_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the costs that are still to come would answer the next request."""

    def interrupts(_reply: object) -> None:
        raise KeyboardInterrupt

    worker, process = client.WorkerClient(1, Method(), 60.0), _Answering(KeyboardInterrupt)
    worker._child._process, worker._child._is_ready = process, True  # type: ignore[assignment]
    monkeypatch.setattr(client, "_answer", interrupts)
    with pytest.raises(KeyboardInterrupt):
        worker.compare({"ask": "cost"}, {"tvm:1": {"digest": "1"}, "tvm:2": {"digest": "1"}})
    assert process.closed
