"""What a failure to build a kernel means: for the kernel, or for this moment only."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import tvm
from tvm.target import Target

from unity_collage.cost.method import Method
from unity_collage.database.rows import FailureKind
from unity_collage.errors import CollageError
from unity_collage.measure import client
from unity_collage.measure.checker import Checker
from unity_collage.measure.kernels import NoKernel
from unity_collage.measure.refusal import Refusal, refusal_of
from unity_collage.measure.remote import builder, builder_pool
from unity_collage.measure.remote.messages import encoded
from unity_collage.processes.child import NoAnswer
from unity_collage.processes.process import Ending
from unity_collage.testing import graphs

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
KILLED = NoAnswer("killed", "building", Ending(-signal.SIGKILL, 1 << 20, ""))
CRASHED = NoAnswer("crashed", "building", Ending(-signal.SIGSEGV, 1 << 20, ""))
SILENT = NoAnswer("no answer within 60 s", "building", is_silent=True)
NOT_STARTED = NoAnswer("not started", "starting", Ending(1, 0, "ImportError"))
BUILT: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("error", "kind", "lasting"),
    [
        (ValueError("no such schedule"), FailureKind.COMPILE_ERROR, True),
        (FULL, None, False),
        (RuntimeError("cannot write k.o: No space left on device"), None, False),
        (RuntimeError("can't start new thread"), None, False),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), None, False),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), None, False),
    ],
)
def test_an_error_of_the_system_does_not_last(
    error: Exception, kind: FailureKind | None, lasting: bool
) -> None:
    found = refusal_of(error, FailureKind.COMPILE_ERROR)
    assert (found.kind, found.lasting) == (kind, lasting)


@pytest.mark.parametrize("lasting", [True, False])
def test_a_worker_says_whether_a_refusal_lasts(lasting: bool) -> None:
    said: list[dict[str, Any]] = []
    refusal = Refusal("disk", lasting=lasting)
    Checker(None, said.append)._refuse("key", refusal)  # pyright: ignore[reportArgumentType]
    assert client._answer(json.loads(json.dumps(said[0]))) == refusal


@pytest.mark.parametrize(
    ("error", "kind", "lasting"),
    [
        (NoKernel("TVM makes 2 kernels of it"), None, True),
        (RuntimeError("bad code"), FailureKind.COMPILE_ERROR, True),
        (FULL, None, False),
    ],
)
def test_a_builder_tells_errors_of_the_compiler_from_those_of_the_system(
    error: Exception, kind: FailureKind | None, lasting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(builder, "make_kernel", fails)
    request = {
        "function": tvm.ir.save_json(graphs.chain()),
        "target": str(Target("llvm")),
        "backend": "tvm",
        "library": "k.so",
        "constants": "k.params",
    }
    found = builder._why_not_built(request)
    assert found is not None and (found.kind, found.lasting) == (kind, lasting)


@pytest.mark.parametrize(
    ("replies", "kind", "lasting", "asked"),
    [
        ([SILENT], None, False, 1),
        ([NOT_STARTED], None, False, 1),
        ([KILLED, KILLED], None, False, 2),
        ([CRASHED, CRASHED], FailureKind.CRASH, True, 2),
        ([encoded(Refusal("bad code", FailureKind.COMPILE_ERROR))], FailureKind.COMPILE_ERROR, True, 1),
    ],
)
def test_the_end_of_a_builder_is_judged_as_that_of_a_worker(
    replies: list[Any], kind: FailureKind | None, lasting: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(replies)
    monkeypatch.setattr(builder_pool, "Child", lambda *_: _Scripted(left))
    found = builder_pool.BuilderPool(60.0).why_not_built({"ask": "anything"})
    assert found is not None and (found.kind, found.lasting) == (kind, lasting)
    assert len(replies) - len(left) == asked


def test_a_kernel_that_ended_a_builder_once_is_built_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [CRASHED, BUILT]
    monkeypatch.setattr(builder_pool, "Child", lambda *_: _Scripted(left))
    assert builder_pool.BuilderPool(60.0).why_not_built({"ask": "anything"}) is None and not left


def test_a_pool_that_is_closed_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [BUILT]
    monkeypatch.setattr(builder_pool, "Child", lambda *_: _Scripted(left))
    pool = builder_pool.BuilderPool(60.0)
    pool.close()
    with pytest.raises(CollageError, match="are closed"):
        pool.why_not_built({"ask": "anything"})
    assert left


@pytest.mark.parametrize(("ending", "lasting"), [(SILENT, False), (KILLED, False), (CRASHED, True)])
def test_a_worker_without_an_answer_says_whether_that_lasts(ending: NoAnswer, lasting: bool) -> None:
    worker = client.WorkerClient(1, Method(), 60.0)
    worker._child = _Scripted([ending])  # type: ignore[assignment]
    assert worker.ask({"ask": "launch"})["lasting"] is lasting


class _Scripted:
    """A process that answers with the next reply, or ends."""

    def __init__(self, replies: list[Any]) -> None:
        self._replies = replies

    def messages(self, _request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        reply = self._replies.pop(0)
        if isinstance(reply, NoAnswer):
            raise reply
        yield reply

    def close(self) -> None: ...
