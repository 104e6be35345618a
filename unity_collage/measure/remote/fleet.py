"""Fleet: several servers at once, each with its own client. The clients take questions from one queue."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from .client import ATTEMPTS, RemoteClient
from .servers import Lost, NoServer

LOGGER = logging.getLogger(__name__)

Q = TypeVar("Q")
A = TypeVar("A")

_LOOK_SECONDS = 5.0
"""Seconds between two questions to the tracker whether more servers are free."""

_LEAVING_SECONDS = 2.0
"""How long to wait for the clients when the work is given up: one may still wait for the reply of its server."""


class Fleet:
    """Clients of one tracker, each with a server of its own."""

    def __init__(self, make: Callable[[RemoteClient | None], RemoteClient]):
        """``make`` creates a client; its argument is the first client, None when it creates that one."""
        self._make = make
        self.clients = [make(None)]

    @property
    def client(self) -> RemoteClient:
        """A client that has a server, if any has one."""
        return next((client for client in self.clients if client.is_open), self.clients[0])

    def spread(self, questions: Sequence[Q], work: Callable[[RemoteClient, Q], A]) -> list[A | Lost]:
        """The result of ``work`` for each request, in their order, on as many servers as are free.

        A question over which a server was lost goes to the next one; after ``ATTEMPTS`` losses its answer is
        :class:`Lost`. Any other error of ``work``, and Ctrl-C, ends all work and is raised.
        """
        shift = _Shift(questions, work)
        try:
            return self._answers(shift)
        except BaseException:
            if not shift.give_up():
                self._start_again()
            raise

    def _answers(self, shift: _Shift[Q, A]) -> list[A | Lost]:
        idle = [client for client in self.clients if not client.is_open]
        for client in [client for client in self.clients if client.is_open] or [idle.pop(0)]:
            shift.employ(client)
        seconds = 0.0
        while not shift.is_over(seconds):
            seconds = _LOOK_SECONDS
            for _ in range(shift.wanted(self.clients[0].free_servers())):
                client = idle.pop() if idle else self._another()
                shift.employ(client)
        return shift.answers()

    def _another(self) -> RemoteClient:
        self.clients.append(self._make(self.clients[0]))
        return self.clients[-1]

    def _start_again(self) -> None:
        """Leave all clients, of which some still work. Files of their questions have the names of those to come."""
        self.close()
        self.clients = [self._make(None)]

    def close(self) -> None:
        """End all sessions."""
        for client in self.clients:
            client.close()


class _Shift(Generic[Q, A]):
    """One queue of questions, and the clients that answer them."""

    def __init__(self, questions: Sequence[Q], work: Callable[[RemoteClient, Q], A]):
        self._questions = questions
        self._work = work
        self._queue = deque(range(len(questions)))
        self._found: dict[int, A | Lost] = {}
        self._losses: Counter[int] = Counter()
        self._error: BaseException | None = None
        self._is_given_up = False
        self._at_work = self._seeking = 0
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()

    def employ(self, client: RemoteClient) -> None:
        """Let ``client`` take questions, in a thread of its own."""
        with self._changed:
            self._at_work += 1
        self._seeks(client)
        thread = threading.Thread(target=self._take, args=(client,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def wanted(self, free: int) -> int:
        """How many more clients could work while ``free`` servers are free."""
        with self._changed:
            return max(0, min(len(self._queue), free) - self._seeking)

    def is_over(self, seconds: float) -> bool:
        """Whether all requests have replies or an error has ended the work; waits for at most ``seconds``."""
        with self._changed:
            return self._changed.wait_for(self._has_ended, seconds)

    def answers(self) -> list[A | Lost]:
        """All answers; raises the error that has ended the work."""
        if self._error is not None:
            raise self._error
        return [self._found[number] for number in range(len(self._questions))]

    def give_up(self) -> bool:
        """Let no client take another question, and wait a moment until they have left; whether all have."""
        with self._changed:
            self._is_given_up = True
            self._changed.notify_all()
        end = time.monotonic() + _LEAVING_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _has_ended(self) -> bool:
        if self._is_given_up or self._error is not None:
            return True
        return len(self._found) == len(self._questions)

    def _take(self, client: RemoteClient) -> None:
        while self._has_server(client) and (number := self._next()) is not None:
            try:
                answer = self._work(client, self._questions[number])
            except Lost as lost:
                LOGGER.warning("a server was lost: %s", lost)
                client.drop()
                self._lost(number, Lost(str(lost)))  # the error itself refers to frames that have the server
                if not client.free_servers() and self._leaves():
                    return
                self._seeks(client)
            except BaseException as error:  # raised where the answers are asked for
                self._end(error)
            else:
                self._told(number, answer)

    def _seeks(self, client: RemoteClient) -> None:
        """Count the client among those that wait for a server, if it has none."""
        with self._changed:
            self._seeking += 0 if client.is_open else 1

    def _has_server(self, client: RemoteClient) -> bool:
        """Wait for a server before any question is taken; the last client that finds none ends the work."""
        if client.is_open:
            return True
        try:
            client.open()
        except Exception as error:
            if not (isinstance(error, NoServer) and self._leaves()):
                self._end(error)
            return False
        finally:
            with self._changed:
                self._seeking -= 1
                is_late = self._has_ended()
        if is_late:
            client.drop()
        return not is_late

    def _next(self) -> int | None:
        """The next question; None when all is answered. A question that another client works on may come back."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._has_ended())
            return None if self._has_ended() else self._queue.popleft()

    def _told(self, number: int, answer: A | Lost) -> None:
        with self._changed:
            self._found[number] = answer
            self._changed.notify_all()

    def _end(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _lost(self, number: int, lost: Lost) -> None:
        """Put a question back, or give it up."""
        self._losses[number] += 1
        if self._losses[number] >= ATTEMPTS:
            self._told(number, lost)
        else:
            self._back(number)

    def _back(self, number: int) -> None:
        with self._changed:
            self._queue.appendleft(number)
            self._changed.notify_all()

    def _leaves(self) -> bool:
        """Whether a client may stop working: the last one must stay."""
        with self._changed:
            if self._at_work == 1:
                return False
            self._at_work -= 1
            return True
