"""Files are written in one step; links stay links, and devices and pipes are not replaced."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from unity_collage.errors import CollageError
from unity_collage.lowering import library_file, writing
from unity_collage.lowering.library_file import why_no_file, write
from unity_collage.program.bundle import why_no_bundle


def test_a_pipe_gets_the_data_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        write(pipe, b"data")
        assert os.read(reader, 9) == b"data" and pipe.is_fifo()
    finally:
        os.close(reader)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    for data in (b"new", b"replaced"):
        write(link, data)
        assert link.is_symlink() and file.read_bytes() == data
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


def test_a_folder_in_which_nothing_can_be_replaced_is_found_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").touch()
    monkeypatch.setattr(library_file.os, "access", lambda path, _: Path(path) != tmp_path)
    assert why_no_file(tmp_path / "old") == f"files in {tmp_path} cannot be replaced"
    assert why_no_file(tmp_path / "new") == "permission denied"


def test_a_name_that_is_too_long_is_a_reason(tmp_path: Path) -> None:
    assert why_no_file(tmp_path / ("x" * 300)) == "file name too long"
    assert why_no_bundle(tmp_path / ("x" * 300)) == "file name too long"


def test_a_link_to_itself_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    write(tmp_path / "loop", b"data")
    assert (tmp_path / "loop").read_bytes() == b"data"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "old").write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(CollageError, match=r"old cannot be written: .*No space left"):
        write(tmp_path / "old", b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_ctrl_c_does_not_end_the_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compile that is asked to stop measuring links its program all the same."""
    here = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    inside: list[bool] = []

    def linker(*_: object) -> None:
        inside.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    monkeypatch.setattr(writing.cc, "create_shared", linker)
    writing._linked("program.so", ["0.o"])
    assert inside == [True] and signal.pthread_sigmask(signal.SIG_BLOCK, ()) == here


def test_a_time_limit_of_the_user_is_not_a_fault_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may raise TimeoutError, which is an OSError, at any time. Nothing half-written is left."""

    def late(*_: object) -> None:
        raise TimeoutError("of the user")

    monkeypatch.setattr(Path, "replace", late)
    with pytest.raises(TimeoutError, match="of the user"):
        write(tmp_path / "file", b"data")
    assert not list(tmp_path.iterdir())
