"""RemoteClient: the counterpart of WorkerClient for servers behind a tracker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from ...cost.method import Method
from ...errors import CollageError
from ...scratch import Scratch
from ..client import Answer
from ..refusal import Refusal
from .builder_pool import BuilderPool
from .messages import decoded
from .servers import Lost, Server, Servers

LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

ATTEMPTS = 3
"""After this many servers were lost over one request, it is given up in this run."""


class RemoteClient:
    """Makes kernels here, and asks a server for their costs.

    It has one server at a time. :meth:`ask` replaces a server that is lost and asks the next one; for :meth:`compare`
    :class:`.fleet.Fleet` does so.
    """

    def __init__(
        self,
        servers: Servers,
        method: Method,
        timeout_seconds: float,
        memory_bytes: int | None,
        first: RemoteClient | None = None,
    ):
        """``first``: a client of other servers. The servers of both must be alike; both use its builder processes."""
        self._servers = servers
        self._method = method
        self._limits = {"timeout_seconds": timeout_seconds, "memory_bytes": memory_bytes}
        self._builders = first._builders if first else BuilderPool(timeout_seconds)
        self._facts: dict[tuple[str, str], dict[str, Any]] = first._facts if first else {}
        self._checked: Server | None = None
        self._is_closed = False

    def facts(self, target: str, backend: str) -> dict[str, Any]:
        """What a server reports about itself and about a backend, for this target (empty: the server's own target).

        Raises CollageError, with the server's reason, if it cannot tell. The next call asks again.
        """
        if (target, backend) not in self._facts:
            reply = self._reply(self._question(target, backend))
            if "reason" in reply:
                name = self._servers.name
                raise CollageError(f"a server for {name} cannot tell what it is: {reply['reason']}")
            self._facts[target, backend] = reply
        return self._facts[target, backend]

    def machine(self) -> dict[str, Any]:
        """The caches and the peaks of a server, which it measures now; raises CollageError."""
        reply = self._reply({"ask": "machine"})
        if "reason" in reply:
            raise CollageError(f"a server for {self._servers.name} cannot be measured: {reply['reason']}")
        return reply

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply of a server's worker process."""
        return self._reply({"ask": "worker", "question": dict(request), **self._settings()})

    def compare(
        self, request: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Answer]:
        """A cost or a refusal for each of ``candidates``, timed together on one server; raises Lost with it."""
        answers: dict[str, Answer] = {}
        with Scratch("remote") as folder:
            files: dict[str, Path] = {}
            asked: dict[str, dict[str, str]] = {}
            for number, (key, candidate) in enumerate(candidates.items()):
                made = {
                    f"{number}.so": Path(folder, f"{number}.so"),
                    f"{number}.params": Path(folder, f"{number}.params"),
                }
                refusal = self._made(request["target"], candidate, *made.values())
                if refusal is not None:
                    answers[key] = refusal
                else:
                    library, constants = made
                    asked[key] = {**candidate, "library": library, "constants": constants}
                    files |= made
            if asked:
                answers |= self._timed(request, asked, files)
        return answers

    @property
    def is_open(self) -> bool:
        """Whether the client has a server."""
        return self._servers.is_open

    def open(self) -> None:
        """Wait for a server if the client has none; raises NoServer."""
        self._current()

    def free_servers(self) -> int:
        """How many servers are idle."""
        return self._servers.free()

    def drop(self) -> None:
        """End the session: the next question goes to whichever server is free."""
        self._checked = None
        self._servers.drop()

    def close(self) -> None:
        """End the session and the processes that build kernels; later questions raise CollageError."""
        self._is_closed = True
        self._builders.close()
        self.drop()

    def _current(self) -> Server:
        """The server in use, or the next free one; raises NoServer, or CollageError after :meth:`close`."""
        if self._is_closed:
            raise CollageError(f"the session with servers for {self._servers.name} is closed")
        return self._servers.current()

    def _made(
        self, target: str, candidate: Mapping[str, Any], library: Path, constants: Path
    ) -> Refusal | None:
        """Write a candidate's library and constants, or return why there are none."""
        reason = self.facts(target, candidate["backend"])["backends"][candidate["backend"]].get("reason")
        if reason is not None:
            return Refusal(reason, lasting=False)
        paths = {"library": str(library), "constants": str(constants)}
        return self._builders.why_not_built({**candidate, "target": target, **paths})

    def _timed(
        self, question: Mapping[str, Any], asked: Mapping[str, Any], files: Mapping[str, Path]
    ) -> dict[str, Answer]:
        request = {"ask": "compare", "question": dict(question), "candidates": asked, **self._settings()}

        def work(server: Server) -> dict[str, Any]:
            self._check_alike(server)
            server.upload(files)
            reply = server.ask(request)
            server.remove(files)
            return reply

        reply = work(self._current())
        if "reason" in reply:
            return dict.fromkeys(asked, Refusal(f"the server has failed: {reply['reason']}", lasting=False))
        return {key: decoded(found) for key, found in reply.items()}

    def _reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        def work(server: Server) -> dict[str, Any]:
            if request["ask"] != "facts":
                self._check_alike(server)
            return server.ask(request)

        try:
            return self._on_some(work)
        except Lost as error:
            raise CollageError(f"{ATTEMPTS} servers for {self._servers.name} were lost: {error}") from None

    def _on_some(self, work: Callable[[Server], T]) -> T:
        """The result of ``work`` for a server; if the server is lost, for the next one."""
        problem = ""
        for _ in range(ATTEMPTS):
            try:
                return work(self._current())
            except Lost as error:
                problem = str(error)
                LOGGER.warning("a server for %s was lost: %s", self._servers.name, problem)
                self.drop()
        raise Lost(problem)

    def _check_alike(self, server: Server) -> None:
        """Raises CollageError for a server that is not the same kind of machine as the first one."""
        if server is self._checked:
            return
        for (target, backend), known in list(self._facts.items()):
            if server.ask(self._question(target, backend)) != known:
                raise CollageError(
                    f"two servers for {self._servers.name} differ: give each kind of machine a key of its own"
                )
        self._checked = server

    def _question(self, target: str, backend: str) -> dict[str, Any]:
        backends = [backend] if backend else []
        return {"ask": "facts", "target": target, "backends": backends, "method": asdict(self._method)}

    def _settings(self) -> dict[str, Any]:
        return {"method": asdict(self._method), **self._limits}
