"""Fleet: questions on several servers at once, without a server."""

from __future__ import annotations

from threading import Barrier, Event, Lock
from threading import enumerate as enumerate_threads

import pytest

from unity_collage.measure.remote import fleet as fleets
from unity_collage.measure.remote.fleet import Fleet, _Shift
from unity_collage.measure.remote.servers import Lost, NoServer

PATIENCE = 300.0


class Farm:
    """A number of servers, of which some break at their first question."""

    def __init__(self, servers: int, broken: int = 0):
        self.free = servers
        self.broken = broken
        self.lock = Lock()


class Client:
    """A client of a server of the farm."""

    def __init__(self, farm: Farm):
        self._farm = farm
        self.is_open = False
        self.is_closed = False

    def open(self) -> None:
        with self._farm.lock:
            if not self.is_open and not self._farm.free:
                raise NoServer("no server for 'test'")
            self._farm.free -= 0 if self.is_open else 1
            self.is_open = True

    def free_servers(self) -> int:
        return self._farm.free

    def drop(self) -> None:
        self.is_open = False

    def close(self) -> None:
        self.is_closed = True

    def answer(self, question: int) -> int:
        with self._farm.lock:
            if self._farm.broken:
                self._farm.broken -= 1
                raise Lost("power cut")
        return question * question


def fleet(farm: Farm) -> Fleet:
    return Fleet(lambda _: Client(farm))  # pyright: ignore[reportArgumentType]


def answer(client: Client, question: int) -> int:
    return client.answer(question)


def test_answers_come_in_the_order_of_the_questions() -> None:
    assert fleet(Farm(3)).spread(range(20), answer) == [n * n for n in range(20)]


def test_all_free_servers_are_used_at_once() -> None:
    """Each of the first three questions waits until there are three."""
    together = Barrier(3)

    def waiting(client: Client, question: int) -> int:
        together.wait(PATIENCE)
        return client.answer(question)

    assert fleet(Farm(3)).spread(range(3), waiting) == [0, 1, 4]


def test_the_others_take_over_what_a_lost_server_was_asked() -> None:
    assert fleet(Farm(3, broken=2)).spread(range(9), answer) == [n * n for n in range(9)]


def test_a_question_that_servers_are_lost_over_again_and_again_is_given_up() -> None:
    def cursed(client: Client, question: int) -> int:
        if question == 1:
            raise Lost("power cut")
        return client.answer(question)

    found = fleet(Farm(9)).spread(range(3), cursed)
    assert (found[0], found[2]) == (0, 4) and isinstance(found[1], Lost)
    assert found[1].__traceback__ is None, "its frames would keep the session"


def test_when_the_last_server_is_lost_it_says_so() -> None:
    with pytest.raises(NoServer):
        fleet(Farm(1, broken=1)).spread(range(3), answer)


def test_an_error_ends_it_all() -> None:
    def wrong(client: Client, question: int) -> int:
        raise ValueError(f"no {question}")

    with pytest.raises(ValueError, match="no "):
        fleet(Farm(2)).spread(range(5), wrong)


def test_sessions_are_used_again() -> None:
    farm = Farm(2)
    both = fleet(farm)
    both.spread(range(6), answer)
    opened = farm.free
    assert both.spread(range(6), answer) == [n * n for n in range(6)]
    assert farm.free <= opened and len(both.clients) <= 2


def test_after_ctrl_c_no_client_takes_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one client is at work when the wait for answers is interrupted, and leaves after its question."""
    begun, interrupted, asked = Event(), Event(), list[int]()

    def held(_client: Client, question: int) -> int:
        asked.append(question)
        begun.set()
        interrupted.wait(PATIENCE)
        return question

    def interrupts(*_: object) -> bool:
        begun.wait(PATIENCE)
        interrupted.set()
        raise KeyboardInterrupt

    before = set(enumerate_threads())
    monkeypatch.setattr(_Shift, "is_over", interrupts)
    monkeypatch.setattr(_Shift, "_told", lambda shift, *_: is_given_up(shift))
    with pytest.raises(KeyboardInterrupt):
        fleet(Farm(1)).spread(range(9), held)
    assert asked == [0] and not set(enumerate_threads()) - before


def test_a_client_that_works_on_after_ctrl_c_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still send the files of its question, which have the same names on the server as those of the next."""
    begun, ended = Event(), Event()

    def long(_client: Client, question: int) -> int:
        begun.set()
        ended.wait(PATIENCE)
        return question

    def interrupts(*_: object) -> bool:
        begun.wait(PATIENCE)
        raise KeyboardInterrupt

    monkeypatch.setattr(fleets, "_LEAVING_SECONDS", 0.01)
    asked = fleet(Farm(2))
    (first,) = asked.clients
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_Shift, "is_over", interrupts)
        asked.spread(range(1), long)
    assert first.is_closed and first not in asked.clients  # pyright: ignore[reportAttributeAccessIssue]
    assert asked.spread(range(3), answer) == [0, 1, 4]
    ended.set()


def is_given_up(shift: _Shift[int, int]) -> None:
    """Wait until the shift is given up: a quick client may answer before."""
    with shift._changed:
        assert shift._changed.wait_for(lambda: shift._is_given_up, PATIENCE)
