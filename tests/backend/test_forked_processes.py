"""Processes that are forks of one template."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from unity_collage.cost.method import Method
from unity_collage.measure.loaded import LOADED
from unity_collage.processes import forking
from unity_collage.processes.child import Child

MODULE = "unity_collage.measure.worker"
HELLO = {"threads": 1, "method": asdict(Method()), "memory_bytes": 1 << 33, "objects": None}


@pytest.fixture(autouse=True)
def _own_template(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A template of its own for each test here; other tests keep theirs."""
    monkeypatch.setattr(forking, "_templates", [])
    monkeypatch.setattr(forking, "_failures", [])
    yield
    forking.end_template()


def template() -> int:
    [only] = forking._templates
    return only._process.pid


def pids_below(pid: int) -> set[int]:
    """The processes that ``pid`` has started, directly or not, without those that are only to be waited for."""
    found = {
        int(word)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for word in (task / "children").read_text().split()
    }
    return found | {below for each in found for below in pids_below(each)}


def answer(child: Child) -> str:
    return child.ask({"nothing": "asked"})["reason"]


def test_several_processes_have_one_template_and_leave_nothing() -> None:
    with Child(MODULE, HELLO, 60, loaded=LOADED) as first, Child(MODULE, HELLO, 60, loaded=LOADED) as second:
        assert "KeyError" in answer(first) and "KeyError" in answer(second)
        below = pids_below(template())
        assert len(below) == 4  # a supervisor and a worker each
        running = [psutil.Process(pid) for pid in below]
    # The supervisors are waited for, and the system ends their workers a moment later.
    assert not psutil.wait_procs(running, timeout=10)[1]


def test_the_time_of_processes_that_have_ended_is_not_the_load_of_others() -> None:
    with Child(MODULE, HELLO, 60, loaded=LOADED) as child:
        used, end = 0.0, time.monotonic() + 30
        while used < 0.05 and time.monotonic() < end:  # the system counts in steps of 10 ms
            answer(child)
            running = psutil.Process(template()).children(recursive=True)
            used = sum(sum(each.cpu_times()[:2]) for each in running)
    assert used >= 0.05
    process = psutil.Process(template())
    end = time.monotonic() + 10
    while sum(process.cpu_times()[2:4]) < used and time.monotonic() < end:
        time.sleep(0.01)
    assert sum(process.cpu_times()[2:4]) >= used


def test_a_template_that_was_prepared_is_the_one_that_forks() -> None:
    forking.prepare(LOADED)
    pid = template()
    forking.await_template(60)
    with Child(MODULE, HELLO, 60, loaded=LOADED) as child:
        assert "KeyError" in answer(child)
        assert template() == pid and len(pids_below(pid)) == 2


def test_a_template_that_cannot_import_is_not_waited_for() -> None:
    forking.prepare(["unity_collage.no_such_module"])
    begin = time.monotonic()
    forking.await_template(600)
    assert time.monotonic() - begin < 300
    with Child(MODULE, HELLO, 60) as child:
        assert "KeyError" in answer(child)


def test_a_process_that_is_closed_before_it_has_begun_leaves_nothing() -> None:
    child = Child(MODULE, HELLO, 60, loaded=LOADED)
    child.start()
    child.close()
    with Child(MODULE, HELLO, 60, loaded=LOADED) as later:
        assert "KeyError" in answer(later)
        pid, last = template(), time.monotonic() + 60
        while len(pids_below(pid)) > 2 and time.monotonic() < last:  # the first has to see that it is alone
            time.sleep(0.05)
        assert len(pids_below(pid)) == 2
    forking.end_template()
    assert not Path(f"/proc/{pid}").exists()


def test_another_setting_of_a_library_is_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    with Child(MODULE, HELLO, 60, loaded=LOADED) as first:
        answer(first)
        monkeypatch.setenv("TVM_NUM_THREADS", "1")
        with Child(MODULE, HELLO, 60, loaded=LOADED) as second:
            second.start()
            assert len(pids_below(template())) == 2


def test_a_template_that_is_killed_takes_its_forks_along_and_others_start_without_it() -> None:
    with Child(MODULE, HELLO, 60, loaded=LOADED) as child:
        assert "KeyError" in answer(child)
        os.kill(template(), signal.SIGKILL)
        forking._templates[0]._process.wait()
        # The fork is killed a moment later: until then it answers, and then the answer is that it has crashed.
        while "KeyError" in (reply := answer(child)):
            pass
        assert "SIGKILL" in reply
        assert "KeyError" in answer(child)
