"""The sessions of a server for other machines: however one ends, the next one is served."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unity_collage.measure.remote import sessions

ADDRESS = ("127.0.0.1", 1)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def crashes(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raises(*_: Any) -> None:
    raise OSError("the client is gone within a message")


def hangs(*_: Any) -> None:
    time.sleep(3600.0)


def writes(connection: socket.socket, _library: object, _folder: object) -> None:
    Path("written").write_text("in the folder of the session")
    connection.sendall(bytes(Path.cwd()))


@pytest.mark.parametrize(("loop", "code"), [(crashes, "-9"), (raises, "1")])
def test_an_unclean_end_is_one_line(
    loop: Any,
    code: str,
    pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sessions, "session_loop", loop)
    sessions.serve(pair[0], ADDRESS, {}, None)
    assert [record.getMessage() for record in caplog.records] == [
        f"the session of {ADDRESS} has ended with exit code {code}"
    ]


def test_a_session_that_goes_on_without_its_client_is_ended(
    pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sessions, "session_loop", hangs)
    monkeypatch.setattr(sessions, "_LEAVING_SECONDS", 0.0)
    pair[1].close()
    sessions.serve(pair[0], ADDRESS, {}, None)
    assert "has ended with exit code -9" in caplog.text


def test_a_session_has_a_folder_of_its_own(
    pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = Path.cwd()
    monkeypatch.setattr(sessions, "session_loop", writes)
    sessions.serve(pair[0], ADDRESS, {}, None)
    theirs = Path(pair[1].recv(4096).decode())
    assert theirs.is_absolute() and theirs != here == Path.cwd() and not theirs.exists()
    assert not caplog.records


def test_what_cannot_start_is_one_line(
    pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sessions, "tempdir", full)
    sessions.serve(pair[0], ADDRESS, {}, None)
    assert "has failed: [Errno 28] No space left on device" in caplog.text


LISTENS = """
import os, threading, time
from unity_collage.measure.remote import sessions
sessions.listen(os.getppid())
threading.Thread(target=lambda: 1 / 0).start()
time.sleep(3600)
"""


def test_a_server_ends_with_the_thread_that_listens() -> None:
    done = subprocess.run([sys.executable, "-c", LISTENS], capture_output=True, text=True, timeout=300.0)
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr
