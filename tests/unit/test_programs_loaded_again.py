"""ProgramWorker: what a new process loads after the last one has ended. A process of the test answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_collage.profile import programs
from unity_collage.profile.programs import ProgramWorker


class FakeChild:
    """Loads programs by name. Those of ``crashing`` end the process when it loads them."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.starts = 0
        self.loaded: list[str] | None = None
        self.crashing: set[str] = set()
        self.ends_before_next = self.always_ends = False
        self.was_silent = False

    def start(self) -> None:
        if self.loaded is None:
            self.loaded = []
            self.starts += 1

    def end(self) -> None:
        self.loaded = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self.ends_before_next and request["ask"] != "load":
            self.ends_before_next, self.loaded = self.always_ends, None
        self.start()
        assert self.loaded is not None
        if request["ask"] == "load":
            if request["name"] in self.crashing:
                self.end()
                return {"reason": "the process crashed: SIGSEGV"}
            self.loaded.append(request["name"])
            return {}
        names = request.get("names", [request.get("name")])
        missing = [name for name in names if name not in self.loaded]
        return {"reason": f"KeyError: {missing[0]}"} if missing else {"seconds": [1.0] * len(names)}

    def close(self) -> None: ...


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ProgramWorker]:
    monkeypatch.setattr(programs, "Child", FakeChild)
    with ProgramWorker([[np.zeros(1)]], threads=1) as made:
        for name in "abc":
            path = tmp_path / f"{name}.so"
            path.touch()
            assert made._load(name, path) is None
        yield made


def child_of(worker: ProgramWorker) -> FakeChild:
    child: Any = worker._child
    return child


def ends_now(child: FakeChild) -> None:
    child.end()


def ends_at_the_question(child: FakeChild) -> None:
    child.ends_before_next = True


@pytest.mark.parametrize("end", [ends_now, ends_at_the_question])
def test_programs_are_loaded_again_by_a_process_that_replaces_one(
    worker: ProgramWorker, end: Callable[[FakeChild], None]
) -> None:
    end(child_of(worker))
    assert worker.once(["a", "b", "c"]) == [1.0, 1.0, 1.0]
    assert child_of(worker).starts == 2


def test_a_program_that_crashes_then_is_dropped_with_its_reason_and_the_others_stay(
    worker: ProgramWorker,
) -> None:
    child = child_of(worker)
    child.crashing.add("b")
    child.end()
    assert worker.once(["a", "c"]) == [1.0, 1.0]
    assert worker.once(["a", "b"]) == "the process crashed: SIGSEGV"
    assert child.loaded == ["a", "c"]
    starts = child.starts
    worker.remove("b")
    assert worker.once(["a"]) == [1.0] and child.starts == starts


def test_a_process_that_always_ends_is_a_reason(worker: ProgramWorker) -> None:
    child = child_of(worker)
    child.ends_before_next = child.always_ends = True
    assert worker.once(["a"]) == "the process of the programs ends again and again"
