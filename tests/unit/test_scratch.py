"""Temporary folders: those of processes that have ended are removed, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from unity_collage import scratch
from unity_collage.scratch import Scratch


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, in which no folder was removed yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    scratch._remove_abandoned.cache_clear()
    yield tmp_path
    scratch._remove_abandoned.cache_clear()


def left_by_a_killed_process() -> Path:
    code = """
import os, signal
from unity_collage.scratch import Scratch
made = Scratch("test")
open(f"{made.name}/file", "w").close()
print(made.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    return Path(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())


def test_a_folder_and_its_content_go_at_the_end(parent: Path) -> None:
    with Scratch("test") as name:
        (Path(name) / "file").touch()
        assert Path(name).parent == parent and Path(name).name.startswith("collage-test-")
    assert not list(parent.iterdir())


def test_a_folder_goes_with_its_object(parent: Path) -> None:
    made = Scratch("test")
    made.cleanup()
    made.cleanup()
    Scratch("test")
    assert not list(parent.iterdir())


def test_what_a_killed_process_has_left_is_removed_by_the_next() -> None:
    left = left_by_a_killed_process()
    assert (left / "file").exists()
    with Scratch("test"):
        assert not left.exists()


def test_folders_of_others_stay(parent: Path) -> None:
    alive = Scratch("test")
    foreign, linked = parent / "collage-of-somebody", parent / "collage-link"
    (foreign / "photographs").mkdir(parents=True)
    linked.symlink_to(foreign)
    (parent / "collage-file").touch()
    scratch._remove_abandoned.cache_clear()
    with Scratch("test"):
        assert Path(alive.name).is_dir() and (foreign / "photographs").is_dir() and linked.is_symlink()
        assert (parent / "collage-file").exists()


def test_a_folder_of_another_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_by_a_killed_process()
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with Scratch("test"):
        assert left.is_dir()


def test_a_fork_does_not_remove_the_folder_of_its_parent() -> None:
    made = Scratch("test")
    if (pid := os.fork()) == 0:
        made.cleanup()
        os._exit(0)
    os.waitpid(pid, 0)
    assert Path(made.name).is_dir()


def test_a_folder_that_another_process_took_for_abandoned_is_made_again(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, original = [], scratch.fcntl.flock

    def removed_first(lock: int, operation: int) -> None:
        if not locked:
            (folder,) = parent.iterdir()
            scratch.shutil.rmtree(folder)
        locked.append(lock)
        original(lock, operation)

    monkeypatch.setattr(scratch.fcntl, "flock", removed_first)
    with Scratch("test") as name:
        assert Path(name).is_dir() and len(locked) == 2
