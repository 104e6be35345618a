"""RemoteClient and RemoteDevice over servers that fail, without a network."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.target import Target

from unity_collage.cost.method import Method
from unity_collage.errors import CollageError
from unity_collage.measure import kernel_library
from unity_collage.measure.kernels import Kernel
from unity_collage.measure.remote.client import ATTEMPTS, RemoteClient
from unity_collage.measure.remote.servers import Server
from unity_collage.remote import device as devices


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is unreachable only through a cycle stays, as it does between two collections."""
    gc.disable()
    yield
    gc.enable()


class Session:
    """A session with a server, whose connection is broken."""

    def get_function(self, _name: str) -> Any:
        raise RuntimeError("reset by peer")


class Pool:
    """Hands out the next server after each loss."""

    name = "'test'"

    def __init__(self, made: list[Server]) -> None:
        self._left = made

    def current(self) -> Server:
        return self._left[0]

    def drop(self) -> None:
        del self._left[0]


def client(pool: Any) -> RemoteClient:
    return RemoteClient(pool, Method(), 1.0, None)


def test_the_error_about_lost_servers_keeps_no_session(
    no_collector: None, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = [Session() for _ in range(ATTEMPTS)]
    alive = [weakref.ref(session) for session in sessions]
    remote = client(Pool([Server(sessions.pop(), 5.0) for _ in range(ATTEMPTS)]))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(CollageError, match="were lost: reset by peer") as error,
    ):
        remote.ask({"ask": "launch"})
    assert [session() for session in alive] == [None] * ATTEMPTS, error.value
    assert caplog.text.count("a server for 'test' was lost: reset by peer") == ATTEMPTS


def test_a_client_that_drops_its_server_forgets_it(no_collector: None) -> None:
    server: Any = Alike(2)
    alive = weakref.ref(server)
    remote = client(Pool([server]))
    remote.facts("{}", "tvm")
    remote.ask({"ask": "launch"})
    remote.drop()
    del server
    assert alive() is None


def test_the_error_of_a_device_keeps_no_session(no_collector: None) -> None:
    server: Any = Session()
    alive = weakref.ref(server)
    device = devices.RemoteDevice("127.0.0.1:1", "board")
    device._session = devices._Session(server, {"region": []})
    del server

    def fails(session: Any, _there: object) -> None:
        session.server.get_function("run")

    region = devices.RemoteRegion("region", b"", (), ())
    with pytest.raises(CollageError, match="was lost while it computed region: reset by peer") as error:
        device._on_server(region, fails)
    assert alive() is None, error.value


def test_a_call_that_is_interrupted_shares_no_buffers_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    device = devices.RemoteDevice("127.0.0.1:1", "board")
    device._session = devices._Session(Server(Session(), 5.0), {"region": ["a tensor there"]})
    monkeypatch.setattr(devices, "within", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.run(devices.RemoteRegion("region", b"", (), ()), [])
    assert device._session is None


class Alike:
    """Answers, with this number of threads."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def ask(self, request: Any) -> dict[str, Any]:
        if request["ask"] == "facts":
            return {"threads": self._threads, "backends": {name: {} for name in request["backends"]}}
        return {"seconds": 1.0}


def test_a_server_that_cannot_tell_what_it_is_is_asked_again() -> None:
    """Its memory may have run out for a moment."""

    class Short(Alike):
        is_short = True

        def ask(self, request: Any) -> dict[str, Any]:
            if self.is_short:
                self.is_short = False
                return {"reason": "MemoryError: "}
            return super().ask(request)

    pool: Any = Pool([Short(2)])  # type: ignore[list-item]
    remote = client(pool)
    with pytest.raises(CollageError, match="a server for 'test' cannot tell what it is: MemoryError"):
        remote.facts("{}", "tvm")
    assert remote.facts("{}", "tvm")["threads"] == 2


@pytest.mark.parametrize("ask", ["launch", "machine"])
def test_no_question_but_for_facts_goes_to_a_server_of_another_kind(ask: str) -> None:
    pool: Any = Pool([Alike(2), Alike(4)])
    remote = client(pool)
    remote.facts("{}", "tvm")
    remote.drop()
    with pytest.raises(CollageError, match="two servers for 'test' differ"):
        remote.machine() if ask == "machine" else remote.ask({"ask": ask})


def test_a_server_gets_constants_of_all_types(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arrays = [
        np.array([1.5, -2.0], ml_dtypes.bfloat16),
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.zeros((0, 4), np.float16),
        *(np.full((1,), number, np.int8) for number in range(9)),
    ]
    module: Any = SimpleNamespace(kind="llvm")
    monkeypatch.setattr(kernel_library.writing, "write", lambda *_: None)
    monkeypatch.setattr(kernel_library.library_file, "read", lambda _: module)
    kernel = Kernel(module, [tvm.runtime.tensor(array) for array in arrays])
    kernel_library.write(kernel, Target("llvm"), tmp_path / "k.so", tmp_path / "k.params")
    found = kernel_library.read("tvm", "k.so", str(tmp_path / "k.params")).constants
    assert [(each.dtype, tuple(each.shape)) for each in found] == [(a.dtype.name, a.shape) for a in arrays]
    assert all((each.numpy() == array).all() for each, array in zip(found, arrays, strict=True))
