"""Servers: one session at a time on the machines with one key. If a machine is lost, the next one replaces it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tvm

from ...errors import CollageError, last_line
from .messages import FUNCTION

T = TypeVar("T")

_POLL_SECONDS = 1.0
_CONNECT_SECONDS = 10.0


class NoServer(CollageError):
    """No server is free."""


class Lost(Exception):
    """The server, or the connection to it, is lost."""


class Server:
    """One session. Every error is raised as Lost, since our function on the server does not raise."""

    def __init__(self, session: Any, timeout_seconds: float):
        self._session = session
        self._timeout_seconds = timeout_seconds

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request."""
        text = json.dumps(request)
        return json.loads(
            within(self._timeout_seconds, lambda: str(self._session.get_function(FUNCTION)(text)))
        )

    def function(self, name: str) -> Callable[..., Any]:
        """A global function of the server, for its own tensors."""
        return self._session.get_function(name)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """A tensor in the memory of the server."""
        return tvm.runtime.empty(tuple(shape), dtype, self._session.cpu(0))

    def upload(self, files: Mapping[str, Path | bytes]) -> None:
        """Send files, or their contents; the keys are their names on the server."""
        for name, file in files.items():
            data = bytearray(file) if isinstance(file, bytes) else str(file)
            within(self._timeout_seconds, lambda name=name, data=data: self._session.upload(data, name))

    def remove(self, names: Mapping[str, Path]) -> None:
        """Remove what was uploaded."""
        for name in names:
            within(self._timeout_seconds, lambda name=name: self._session.remove(name))


class Servers:
    """The machines that ``tracker`` knows by ``key``."""

    def __init__(self, tracker: tuple[str, int], key: str, wait_seconds: float, timeout_seconds: float):
        self._tracker = tracker
        self._key = key
        self._wait_seconds = wait_seconds
        self._timeout_seconds = timeout_seconds
        self._server: Server | None = None

    def current(self) -> Server:
        """The server in use, or the next free one; raises NoServer after ``wait_seconds`` without one."""
        if self._server is None:
            self._server = Server(self._requested(), self._timeout_seconds)
        return self._server

    def drop(self) -> None:
        """End the session; the next question goes to whichever server is free."""
        self._server = None

    @property
    def is_open(self) -> bool:
        """Whether there is a session."""
        return self._server is not None

    def free(self) -> int:
        """How many machines are idle now; 0 where the tracker does not answer."""
        try:
            return within(_CONNECT_SECONDS, self._count)
        except Lost:
            return 0

    @property
    def name(self) -> str:
        """The key and the address of the tracker, for messages."""
        host, port = self._tracker
        return f"{self._key!r} at the tracker {host}:{port}"

    def _requested(self) -> Any:
        from tvm import rpc

        end = time.monotonic() + self._wait_seconds
        reason = "none has announced itself"
        while time.monotonic() < end:
            try:
                return within(self._wait_seconds, lambda: self._free(rpc))
            except Lost as error:
                reason = str(error)
            time.sleep(_POLL_SECONDS)
        raise NoServer(f"no server for {self.name} within {self._wait_seconds:g} s: {reason}")

    def _free(self, rpc: Any) -> Any:
        # TVM's client would go on trying for a minute.
        socket.create_connection(self._tracker, timeout=_CONNECT_SECONDS).close()
        tracker = rpc.connect_tracker(*self._tracker)
        known = [server["key"] for server in tracker.summary()["server_info"]]
        if f"server:{self._key}" not in known:
            raise RuntimeError("none has announced itself")
        return tracker.request(self._key, max_retry=1)

    def _count(self) -> int:
        from tvm import rpc

        queues = rpc.connect_tracker(*self._tracker).summary()["queue_info"]
        return int(queues.get(self._key, {"free": 0})["free"])


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of ``call``; raises Lost if it fails or takes longer than ``seconds``.

    A call that is given up goes on in its thread until the connection ends. The error keeps no frame of ``call`` alive:
    a session ends when nothing refers to it any more.
    """
    found: list[T] = []
    failed: list[str] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            failed.append(last_line(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise Lost(failed[0] if failed else f"no answer within {seconds:g} s")
    return found[0]
