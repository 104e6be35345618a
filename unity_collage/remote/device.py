"""RemoteDevice: a server behind a tracker, as a device that computes regions of programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

import tvm

from ..errors import CollageError
from ..measure.remote.messages import RUN, address
from ..measure.remote.servers import Lost, Server, Servers, within

T = TypeVar("T")

_ROUNDS = 5
"""How often a copy is timed."""


@dataclass(frozen=True, slots=True)
class RemoteType:
    """The type of a value that is sent or fetched."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class RemoteRegion:
    """A compiled region: the content of its file, and the types of what goes there and back."""

    name: str
    program: bytes
    inputs: tuple[RemoteType, ...]
    results: tuple[RemoteType, ...]


@dataclass(slots=True)
class _Session:
    """The open session of a device, and the buffers there of each region that has run."""

    server: Server
    buffers: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])


class RemoteDevice:
    """A machine with ``python -m unity_collage.measure.remote.server``, behind the tracker at ``host:port``.

    It has one session, on whichever server with the ``key`` is free. A call waits ``wait_seconds`` for a server, and
    ``timeout_seconds`` for its results. If the server is lost, the call ends with a CollageError, and the next call
    asks the tracker for another server.
    """

    def __init__(
        self, tracker: str, key: str, *, wait_seconds: float = 60.0, timeout_seconds: float = 60.0
    ) -> None:
        self.tracker, self.key, self.wait_seconds = tracker, key, wait_seconds
        self._timeout_seconds = timeout_seconds
        self._servers = Servers(address(tracker), key, wait_seconds, timeout_seconds)
        self._session: _Session | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{self.key!r} at the tracker {self.tracker}"

    def close(self) -> None:
        """End the session, so that the server is free for others; the next call opens another one."""
        with self._lock:
            self._drop()

    def run(self, region: RemoteRegion, operands: Sequence[Any]) -> list[Any]:
        """The results of a region for tensors of this machine; calls of several threads wait for each other.

        Raises CollageError.
        """

        def results(session: _Session, there: Sequence[Any]) -> tuple[str, list[Any]]:
            _send(operands, there)
            reason = str(session.server.function(RUN)(region.name, len(region.inputs), *there))
            return reason, [] if reason else [_fetched(each) for each in there[len(region.inputs) :]]

        reason, found = self._on_server(region, results)
        if reason:
            raise CollageError(f"the server {self!r} cannot compute {region.name}: {reason}")
        return found

    def copy_seconds(self, region: RemoteRegion) -> float:
        """The seconds to send the operands of a region and to fetch its results: the median of several times."""

        def timed(_session: _Session, there: Sequence[Any]) -> list[float]:
            here = [tvm.runtime.tensor(each.numpy()) for each in there[: len(region.inputs)]]
            times: list[float] = []
            for _ in range(_ROUNDS):
                begin = time.perf_counter()
                _send(here, there)
                for each in there[len(region.inputs) :]:
                    _fetched(each)
                times.append(time.perf_counter() - begin)
            return times

        return median(self._on_server(region, timed))

    def _on_server(self, region: RemoteRegion, work: Callable[[_Session, Sequence[Any]], T]) -> T:
        """What ``work`` returns for the session and the buffers of a region there.

        The error about a lost server refers to no frame that has the session, which would keep the server busy.
        """
        with self._lock:
            try:
                return self._in_session(region, work)
            except Lost as error:
                reason = str(error)
            except BaseException:  # Ctrl-C: this call goes on there, and the next one would share its buffers
                self._drop()
                raise
            self._drop()
        raise CollageError(
            f"the server {self!r} was lost while it computed {region.name}: {reason}; the next call asks for "
            "another one"
        )

    def _in_session(self, region: RemoteRegion, work: Callable[[_Session, Sequence[Any]], T]) -> T:
        session = self._opened()
        return within(self._timeout_seconds, lambda: work(session, _buffers(session, region)))

    def _opened(self) -> _Session:
        if self._session is None:
            self._session = _Session(self._servers.current())
        return self._session

    def _drop(self) -> None:
        self._session = None
        self._servers.drop()


def _buffers(session: _Session, region: RemoteRegion) -> list[Any]:
    """The tensors of a region on the server: what is sent, and what is fetched. Its program is sent before."""
    if region.name not in session.buffers:
        session.server.upload({f"{region.name}.so": region.program})
        types = (*region.inputs, *region.results)
        session.buffers[region.name] = [session.server.empty(each.shape, each.dtype) for each in types]
    return session.buffers[region.name]


def _send(operands: Sequence[Any], there: Sequence[Any]) -> None:
    for operand, buffer in zip(operands, there, strict=False):
        operand.copyto(buffer)


def _fetched(there: Any) -> Any:
    return there.copyto(tvm.runtime.empty(tuple(map(int, there.shape)), str(there.dtype)))
