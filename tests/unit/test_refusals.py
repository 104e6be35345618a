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
from unity_collage.measure import client, worker
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
    asking = client.WorkerClient(1, Method(), 60.0)
    asking._child = _Scripted([ending])  # type: ignore[assignment]
    assert asking.ask({"ask": "launch"})["lasting"] is lasting


SHORT = {"reason": "memory ran out", "kind": FailureKind.OUT_OF_MEMORY.value, "lasting": True}
COSTED = {"seconds": 1e-6, "low": 1e-6, "high": 1e-6, "runs": 9, "doubtful": False}


class _Remembering:
    """A process whose kernels run out of memory after others, or in each process."""

    suspect, stage = None, ""

    def __init__(self, is_lasting: bool) -> None:
        self.asked: list[list[str]] = []
        self.lives = 1
        self._is_lasting = is_lasting

    def messages(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        keys = list(request["candidates"])
        self.asked.append(keys)
        for key in keys:
            is_short = key == "large" and (self._is_lasting or len(keys) > 1)
            yield {"key": key, **(SHORT if is_short else COSTED)}
        yield {"done": True}

    def close(self) -> None:
        self.lives += 1


@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_kernel_that_runs_out_of_memory_is_asked_about_again_in_a_new_process(is_lasting: bool) -> None:
    """The kernels before it, which the process keeps, may have taken the memory."""
    asking, process = client.WorkerClient(1, Method(), 60.0), _Remembering(is_lasting)
    asking._child = process  # type: ignore[assignment]
    answers = asking.compare(
        {"ask": "cost"}, {"small": {"digest": "1"}, "large": {"digest": "2"}, "other": {"digest": "3"}}
    )
    assert process.asked == [["small", "large", "other"], ["large"]] and process.lives == 2 + is_lasting
    assert [key for key, answer in answers.items() if isinstance(answer, Refusal)] == ["large"] * is_lasting


def test_a_reference_that_runs_out_of_memory_refuses_its_kernels_for_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> None:
        raise MemoryError("Unable to allocate 9 GiB for an array")

    said: list[dict[str, Any]] = []
    measuring = worker.MeasuringWorker(None, Method(), 1 << 30, said.append)  # pyright: ignore
    monkeypatch.setattr(measuring, "_measure", fails)
    measuring.answer({"ask": "cost"})
    assert said[-1]["lasting"] is False and "9 GiB" in said[-1]["reason"]
    asking, process = client.WorkerClient(1, Method(), 60.0), _Scripted(said)
    asking._child = process  # type: ignore[assignment]
    (answer,) = asking.compare({"ask": "cost"}, {"large": {"digest": "1"}}).values()
    assert isinstance(answer, Refusal) and not answer.lasting and process.is_closed


class _Scripted:
    """A process that answers with the next reply, or ends."""

    suspect, stage = None, ""

    def __init__(self, replies: list[Any]) -> None:
        self._replies = replies
        self.is_closed = False

    def messages(self, _request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        reply = self._replies.pop(0)
        if isinstance(reply, NoAnswer):
            raise reply
        yield reply

    def close(self) -> None:
        self.is_closed = True
