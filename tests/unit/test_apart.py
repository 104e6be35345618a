"""Kernels of backends that exclude each other are measured in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from unity_collage.backends import registry
from unity_collage.backends.base import Backend
from unity_collage.cost.method import Method
from unity_collage.measure import client as measuring
from unity_collage.measure.client import LATE, WorkerClient
from unity_collage.testing.fake_backend import fake_backend


class Recorded:
    """Stands for the process: it answers every question at once, and notes what each of its lives was asked."""

    def __init__(self, *_: Any) -> None:
        self.lives: list[set[str]] = [set()]
        self.suspect, self.stage = None, ""

    def messages(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        candidates = request.get("candidates", {})
        self.lives[-1] |= {asked["backend"] for asked in candidates.values()} | set(
            request.get("backends", ())
        )
        for key in candidates:
            yield {"key": key, "seconds": 1.0, "low": 1.0, "high": 1.0, "runs": 1, "doubtful": False}
        yield {"done": True}

    def close(self) -> None:
        self.lives.append(set())


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> WorkerClient:
    made: dict[str, Backend] = {name: fake_backend(name) for name in ("one", "two", "three")}
    made["two"] = replace(made["two"], excludes=frozenset({"one"}))
    monkeypatch.setattr(registry, "find", made.get)
    monkeypatch.setattr(measuring, "Child", Recorded)
    return WorkerClient(1, Method(), 10.0)


def asked(*names: str) -> dict[str, dict[str, str]]:
    return {f"{name}:{number}": {"backend": name, "digest": "same"} for number, name in enumerate(names)}


def test_one_request_is_split(client: WorkerClient) -> None:
    answers = client.compare({"ask": "costs"}, asked("one", "two", "three", "one"))
    assert len(answers) == 4
    assert client._child.lives == [{"one", "three"}, {"two"}]


def test_what_is_left_when_the_time_is_over_is_late(client: WorkerClient) -> None:
    answers = client.compare({"ask": "cost", "seconds": 0.0}, asked("one", "two", "three"))
    assert [answer is LATE for answer in answers.values()] == [False, False, True]
    assert answers["two:1"] is LATE and client._child.lives == [{"one", "three"}]


def test_a_process_is_ended_before_it_loads_what_it_cannot_have(client: WorkerClient) -> None:
    client.compare({"ask": "costs"}, asked("one"))
    client.compare({"ask": "costs"}, asked("three"))
    client.ask({"ask": "launch", "backends": ["two", "three"]})
    client.compare({"ask": "costs"}, asked("one", "three"))
    assert client._child.lives == [{"one", "three"}, {"two", "three"}, {"one", "three"}]


def test_others_share_a_process(client: WorkerClient) -> None:
    client.compare({"ask": "costs"}, asked("two", "three", "three"))
    assert client._child.lives == [{"two", "three"}]
