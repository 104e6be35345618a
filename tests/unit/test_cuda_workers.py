"""The workers that build for one device: how groups are spread over them, without processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Barrier, Lock
from typing import Any

import pytest

from unity_collage.cost.model import Workload
from unity_collage.measure.cuda import workers
from unity_collage.measure.cuda.workers import Workers
from unity_collage.plan.costs import Cost
from unity_collage.testing import graphs

PATIENCE = 300.0
FUNC = graphs.chain()


class Client:
    """Stands for a worker process."""

    def __init__(self) -> None:
        self.is_closed = False
        self.groups = 0
        self.is_busy = Lock()

    def close(self) -> None:
        self.is_closed = True


class Made(list[Client]):
    """Makes clients, and keeps them."""

    def __call__(self) -> Any:
        self.append(Client())
        return self[-1]


def groups(number: int) -> list[list[Workload]]:
    return [[Workload(f"digest{n}", "tvm", f"kernel {n}", FUNC, 0)] for n in range(number)]


def seconds_of(group: list[Workload]) -> dict[str, Cost]:
    (workload,) = group
    return {workload.key: Cost(float(workload.digest.removeprefix("digest")))}


def answer(client: Any, group: list[Workload]) -> dict[str, Cost]:
    """The number of the group as its cost; a worker that is given two groups at a time fails."""
    assert client.is_busy.acquire(blocking=False)
    client.groups += 1
    time.sleep(1e-4)
    client.is_busy.release()
    return seconds_of(group)


@pytest.fixture
def made() -> Made:
    return Made()


@pytest.fixture(params=[1, 3])
def most(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(workers, "most", lambda: request.param)
    return request.param


def test_answers_come_in_the_order_of_the_groups(made: Made, most: int) -> None:
    asked = groups(50)
    assert list(Workers().spread(made, asked, answer)) == [seconds_of(group) for group in asked]
    assert 1 <= len(made) <= most and sum(client.groups for client in made) == 50


def test_groups_are_answered_at_the_same_time(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "most", lambda: 2)
    both = Barrier(2)

    def met(_client: Any, group: list[Workload]) -> dict[str, Cost]:
        both.wait(PATIENCE)
        return seconds_of(group)

    assert len(list(Workers().spread(made, groups(2), met))) == 2 and len(made) == 2


def test_one_group_starts_one_worker_and_none_starts_nothing(made: Made, most: int) -> None:
    session = Workers()
    assert list(session.spread(made, [], answer)) == [] and not made
    (group,) = groups(1)
    assert list(session.spread(made, [group], answer)) == [seconds_of(group)] and len(made) == 1


def test_workers_are_used_again_and_closed_together(made: Made, most: int) -> None:
    session = Workers()
    first = session.first(made)
    for _ in range(3):
        list(session.spread(made, groups(20), answer))
    assert session.first(made) is first is made[0] and len(made) <= most
    assert not any(client.is_closed for client in made)
    before = list(made)
    session.close()
    assert all(client.is_closed for client in before)
    assert session.first(made) not in before


def failing_at(number: int, ran: list[str]) -> Callable[[Any, list[Workload]], dict[str, Cost]]:
    def work(client: Any, group: list[Workload]) -> dict[str, Cost]:
        ran.append(group[0].digest)
        if group[0].digest == f"digest{number}":
            raise KeyError(number)
        return answer(client, group)

    return work


def test_an_exception_is_raised_in_its_turn_and_ends_the_rest(made: Made, most: int) -> None:
    session, ran, got = Workers(), list[str](), list[dict[str, Cost]]()
    asked = groups(20_000)  # they take at least two seconds: far more than to cancel them
    with pytest.raises(KeyError):
        for found in session.spread(made, asked, failing_at(3, ran)):
            got.append(found)
    assert got == [seconds_of(group) for group in asked[:3]]
    assert len(ran) < len(asked)
    assert list(session.spread(made, asked[:5], answer)) == [seconds_of(group) for group in asked[:5]]
    assert len(made) <= most


def test_who_stops_asking_ends_the_rest(made: Made, most: int) -> None:
    ran: list[str] = []
    answers = Workers().spread(made, groups(20_000), failing_at(-1, ran))
    next(iter(answers))
    answers.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert 1 <= len(ran) < 20_000


@pytest.mark.parametrize(("cores", "number"), [(1, 1), (2, 1), (3, 1), (4, 2), (15, 7), (64, 8)])
def test_there_is_a_worker_for_two_cores(cores: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "usable_cores", lambda: list(range(cores)))
    assert workers.most() == number
