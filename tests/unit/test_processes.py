"""Whatever a process of ours does, its parent goes on, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unity_collage.processes import process
from unity_collage.processes.child import Child, NoAnswer
from unity_collage.processes.forking import Forked
from unity_collage.processes.process import Ending, Garbled, Gone, Process, Silent

PRELUDE = """
import json, os, signal, socket, sys, time
c = socket.socket(fileno=int(sys.argv[1]))
r = c.makefile("r")
def say(**m): c.sendall(json.dumps(m).encode() + b"\\n")
def leave(daemon):
    # A child that keeps the connection and the output open; a daemon also leaves the session.
    if pid := os.fork():
        return daemon and os.waitpid(pid, 0)
    if daemon:
        os.setsid()
        if os.fork(): os._exit(0)
    say(pid=os.getpid())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(3600)
r.readline()
say(ready=True)
"""

LEAVES_CHILDREN = "leave(daemon=False); leave(daemon=True)\n"
SLEEPS = "say(pid=os.getpid()); time.sleep(3600)"

Started = Callable[[str], Process]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module. Its process imports an empty package in place of TVM, which takes most of the time."""
    (tmp_path / "tvm").mkdir()
    for name in ("__init__", "relax"):
        (tmp_path / "tvm" / f"{name}.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def written(code: str) -> str:
        (tmp_path / "misbehaving.py").write_text(PRELUDE + code)
        return "misbehaving"

    return written


@pytest.fixture
def started(module: Callable[[str], str]) -> Iterator[Started]:
    made: list[Process] = []

    def start(code: str) -> Process:
        made.append(Process(module(code), {}))
        assert made[-1].receive(60.0) == {"ready": True}
        return made[-1]

    yield start
    for each in made:
        each.close()


def pids_of(process: Process, count: int) -> list[int]:
    return [process.receive(60.0)["pid"] for _ in range(count)]


def are_gone(pids: list[int], within_seconds: float = 0.0) -> bool:
    until = time.monotonic() + within_seconds
    while any(map(runs, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_children_that_are_left_hold_up_nobody_and_are_ended(started: Started) -> None:
    ending = started(LEAVES_CHILDREN + "r.readline(); print('so long'); sys.stdout.flush(); os._exit(3)")
    left = pids_of(ending, 2)
    ending.send({})  # not before: a child that has not said its number yet would be ended with the others
    with pytest.raises(Gone):
        ending.receive(60.0)
    found = ending.ending()
    assert (found.code, found.last_words) == (3, "so long") and found.peak_bytes > 1 << 20
    assert are_gone(left)


def test_a_process_that_ignores_signals_is_closed_with_all_its_children(started: Started) -> None:
    hanging = started(LEAVES_CHILDREN + "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n" + SLEEPS)
    pids = pids_of(hanging, 3)
    hanging.close()
    assert are_gone(pids)


def test_processes_end_when_their_parent_is_killed(module: Callable[[str], str], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import os, signal
from unity_collage.processes.process import Process
process = Process({module(LEAVES_CHILDREN + SLEEPS)!r}, {{}})
said = [process.receive(60.0) for _ in range(4)]
open({str(pids)!r}, "w").write(" ".join(str(message["pid"]) for message in said[1:]))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    assert are_gone([int(pid) for pid in pids.read_text().split()], within_seconds=10.0)


def test_of_a_flood_of_output_only_the_end_is_kept(started: Started) -> None:
    flood = "for _ in range(300): os.write(1, b'x' * (1 << 20))\nsys.exit('enough')"
    flooding = started(flood)
    with pytest.raises(Gone):
        flooding.receive(60.0)
    assert flooding.ending().last_words.endswith("enough")
    assert os.fstat(flooding._report.fileno()).st_size < 1 << 16


def test_a_process_that_closes_its_connection_and_goes_on_is_silent(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ENDING_SECONDS", 0.2)
    closing = started("os.closerange(0, 1000)\ntime.sleep(3600)")
    with pytest.raises(Gone):
        closing.receive(60.0)
    with pytest.raises(Silent):
        closing.ending()


def test_a_supervisor_that_is_killed_takes_its_process_along(started: Started) -> None:
    killing = started("say(pid=os.getpid()); os.kill(os.getppid(), signal.SIGKILL); time.sleep(3600)")
    pids = pids_of(killing, 1)
    with pytest.raises(Gone):
        killing.receive(60.0)
    assert killing.ending() == Ending(-signal.SIGKILL, 0, "")
    assert are_gone(pids, within_seconds=10.0)


def test_temporary_files_of_a_process_are_removed(started: Started) -> None:
    leaving = started("import tempfile; say(folder=tempfile.mkdtemp()); time.sleep(3600)")
    folder = Path(leaving.receive(60.0)["folder"])
    assert folder.is_dir()
    leaving.close()
    assert not folder.exists()


def test_a_fork_of_its_parent_does_not_end_a_process(started: Started) -> None:
    """The fork leaves a block, or an object of it is collected; its copy of the connection is closed."""
    answering = started("say(first=1); r.readline(); say(second=2); time.sleep(3600)")
    assert answering.receive(60.0) == {"first": 1}
    template: Any = SimpleNamespace(read_answers=lambda: None)
    supervisor: Any = answering._supervisor
    answering._supervisor = Forked(template)
    answering._supervisor.answered(supervisor.pid, os.pidfd_open(supervisor.pid))
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            answering.close()
        os._exit(0)
    os.waitpid(pid, 0)
    answering.send({})
    assert answering.receive(60.0) == {"second": 2}
    answering._supervisor = supervisor


@pytest.mark.parametrize("garbage", [b"\xff\xfe\n", b"{\n", b"[]\n", b"1\n", b"[" * 100_000 + b"\n"])
def test_what_is_no_message_is_told_from_messages(garbage: bytes) -> None:
    with pytest.raises(Garbled):
        receiving(garbage).receive(1.0)


def test_a_message_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_MOST_BYTES", 100)
    with pytest.raises(Garbled):
        receiving(b"x" * 101).receive(1.0)


def test_a_time_limit_of_the_user_is_not_taken_for_a_silent_process() -> None:
    """A signal handler that raises TimeoutError, as for a limit of the whole program, is not about the process."""
    waiting = receiving(b"")

    def stop(*_: object) -> None:
        raise TimeoutError("of the user")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(TimeoutError, match="of the user"):
            waiting.receive(60.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(Silent):
        waiting.receive(0.01)


def test_a_process_that_does_not_read_a_long_message_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "STARTING_SECONDS", 0.05)
    made, theirs = object.__new__(Process), socket.socketpair()
    made._socket = theirs[0]
    made._socket.setblocking(False)
    with pytest.raises(Silent):
        made.send({"text": "x" * (1 << 22)})


def receiving(sent: bytes) -> Process:
    """The parent's end of a connection over which ``sent`` came."""
    made = object.__new__(Process)
    made._socket, made._theirs = socket.socketpair()  # type: ignore[attr-defined]  # both live as long
    theirs = made._theirs  # type: ignore[attr-defined]
    made._received = b""
    theirs.sendall(sent[:1000])
    if len(sent) > 1000:
        made._received = sent[:-1]
        theirs.sendall(sent[-1:])
    return made


def test_a_process_that_ended_between_two_questions_is_started_again(module: Callable[[str], str]) -> None:
    code = "while r.readline(): say(pid=os.getpid()); time.sleep(0.05); os._exit(1)"
    with Child(module(code), {}, 60.0) as child:
        first = child.ask({})["pid"]
        assert are_gone([first], within_seconds=10.0)
        assert child.ask({})["pid"] != first and child.starts == 2


def test_garbage_on_the_connection_is_a_reason_and_the_next_question_has_an_answer(
    module: Callable[[str], str], tmp_path: Path
) -> None:
    once = tmp_path / "once"
    code = f"""
r.readline()
say(stage="running", key="bad")
if not os.path.exists({str(once)!r}):
    open({str(once)!r}, "w")
    c.sendall(os.urandom(1000) + b"\\n")
say(fine=True)
time.sleep(3600)
"""
    with Child(module(code), {}, 60.0) as child:
        with pytest.raises(NoAnswer, match="something wrote to the connection") as failure:
            next(child.messages({}))
        assert (failure.value.stage, child.suspect, failure.value.is_silent) == ("running", "bad", False)
        assert child.ask({}) == {"fine": True}
