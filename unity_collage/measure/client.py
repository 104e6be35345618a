"""The parent's end of the worker: requests costs, and decides what a missing reply means for each kernel.

A kernel that ends the worker, keeps it busy for too long or runs out of memory is requested once more, alone. The first
end may have had another cause. If the kernel does the same again, it is refused. The other kernels are requested again,
too.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any

from ..backends.registry import excluding
from ..cost.method import Method
from ..database.rows import FailureKind
from ..machine.environment import half_of_memory
from ..plan.costs import Cost
from ..processes.child import STARTING, Child, NoAnswer
from .loaded import LOADED
from .refusal import Refusal, ended

LOGGER = logging.getLogger(__name__)

Answer = Cost | Refusal

LATE = Refusal("the time for the question was over", lasting=False, is_late=True)


@dataclass(frozen=True, slots=True)
class Worker:
    """Which process measures."""

    module: str
    hello: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its arguments in addition to those of all such processes."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its environment variables in addition to those of all such processes."""
    loaded: Sequence[str] = ()
    """Modules that it imports, if it may be a fork of a process that has them."""


ON_CPU = Worker("unity_collage.measure.worker", loaded=LOADED)

_ATTEMPTS = 2
"""A kernel is refused after it has ended the worker, or has run out of memory, this many times."""
_OF_ALL = ("building ahead", "comparing", "timing")
"""Stages in which the worker is busy with all kernels of a request at once."""


class WorkerClient:
    """One worker process. It starts with the first question, and runs until it ends or is closed."""

    def __init__(
        self,
        threads: int,
        method: Method,
        timeout_seconds: float,
        memory_bytes: int | None = None,
        worker: Worker = ON_CPU,
        objects: str | None = None,
    ):
        """``objects``: the folder of the object code of kernels; None: only the memory of the process has it."""
        self._memory_bytes = memory_bytes or half_of_memory()
        hello = {
            "threads": threads,
            "method": asdict(method),
            "memory_bytes": self._memory_bytes,
            "objects": objects,
            **worker.hello,
        }
        self._child = Child(worker.module, hello, timeout_seconds, worker.variables, worker.loaded)
        self._met: set[str] = set()
        """The backends whose libraries the process may have loaded."""

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The worker's one reply. A crash, or a silence longer than the limit, is a reply with a ``reason``.

        It is ``lasting`` if the next run would have it too.
        """
        self._meet(request.get("backends", ()))
        try:
            reply = next(self._child.messages(request))
        except NoAnswer as error:
            refusal = why_no_answer(error, self._memory_bytes)
            return {"reason": refusal.reason, "lasting": refusal.lasting}
        return {"reason": self._ended_for(reply).reason} if "fault" in reply else reply

    def compare(
        self, request: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Answer]:
        """A cost or a refusal for each of ``candidates``, which are built, checked and timed together.

        Those that are not begun within the request's ``seconds`` are :data:`LATE`.

        Candidates with equal ``digest`` compute the same, and are timed in turns. Candidates of backends that exclude
        each other are in separate processes.
        """
        answers: dict[str, Answer] = {}
        end = time.monotonic() + request.get("seconds", math.inf)
        pending = _compatible(candidates)
        suspected: Counter[str] = Counter()
        while pending:
            group = pending.pop(0)
            left_seconds = max(0.0, end - time.monotonic())
            if answers and not left_seconds:
                answers.update(dict.fromkeys(group, LATE))
                continue
            problem = self._asked({**request, "seconds": left_seconds}, group, answers)
            again = [key for key in group if _is_short(answers.get(key)) and not suspected[key]]
            for key in again:  # the kernels before it may have taken the memory, and the process is ended
                suspected[key] += 1
                del answers[key]
            pending[:0] = [{key: group[key]} for key in again]
            left = {key: asked for key, asked in group.items() if key not in answers and key not in again}
            if not left:
                continue
            suspect = self._child.suspect
            if suspect in left:
                asked = left.pop(suspect)
                suspected[suspect] += 1
                if problem.misbehaved and suspected[suspect] < _ATTEMPTS:
                    pending.append({suspect: asked})
                else:
                    answers[suspect] = problem
                pending += [left] if left else []
            elif len(apart := _by_computation(left)) > 1:
                pending += apart
            elif len(left) == 1 or self._child.stage not in _OF_ALL:
                answers.update(dict.fromkeys(left, problem))
            else:  # one of them is the cause: request each alone
                pending += [{key: asked} for key, asked in left.items()]
        return answers

    def close(self) -> None:
        """End the worker process; the next question starts another."""
        self._child.close()
        self._met.clear()

    def _meet(self, backends: Iterable[str]) -> None:
        """End a process that may have loaded a library with which one of ``backends`` cannot be in one process."""
        met = {*self._met, *backends}
        if excluding(met):
            self.close()
            met = set(backends)
        self._met = met

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _asked(
        self, request: Mapping[str, Any], group: Mapping[str, Any], answers: dict[str, Answer]
    ) -> Refusal:
        """Put the worker's answers into ``answers``; the result is the refusal of the kernels without an answer."""
        self._meet({asked["backend"] for asked in group.values() if "backend" in asked})
        try:
            for reply in self._child.messages({**request, "candidates": dict(group)}):
                if "key" in reply:
                    answers[reply["key"]] = _answer(reply)
                elif "fault" in reply:
                    return self._ended_for(reply)
                else:
                    if reply.get("late"):
                        answers.update({key: LATE for key in group if key not in answers})
                    return self._at_end(reply, [answers[key] for key in group if key in answers])
        except NoAnswer as error:
            return why_no_answer(error, self._memory_bytes)
        except BaseException:  # Ctrl-C between two messages: the others must not answer the next request
            self.close()
            raise
        raise AssertionError("only NoAnswer ends the messages")

    def _ended_for(self, reply: Mapping[str, Any]) -> Refusal:
        """End the worker, which has sent a fault of a kernel and can measure no other one."""
        LOGGER.info("the worker is ended: %s", reply["fault"])
        self.close()
        return Refusal(reply["fault"], FailureKind(reply["kind"]))

    def _at_end(self, reply: Mapping[str, Any], answers: Iterable[Answer]) -> Refusal:
        """The refusal of what is missing after the last reply. A process that ran short of something is ended."""
        missing = Refusal(
            reply.get("reason", "the worker gave no answer"), lasting=reply.get("lasting", True)
        )
        if not missing.lasting or any(map(_is_short, answers)):
            self.close()
        return missing


def _is_short(answer: Answer | None) -> bool:
    """Whether a kernel has run out of memory."""
    return isinstance(answer, Refusal) and answer.kind is FailureKind.OUT_OF_MEMORY


def why_no_answer(error: NoAnswer, memory_bytes: int) -> Refusal:
    """What the end or the silence of a worker means for the kernel that it was busy with."""
    if error.ending is not None:
        refusal = ended(error.ending, memory_bytes)
        if error.stage != STARTING:
            return refusal
        return Refusal(f"{refusal.reason}: {error.ending.last_words}".rstrip(": "), lasting=False)
    reason = f"{error} while {error.stage}"
    if not error.is_silent:
        return Refusal(reason, FailureKind.RUN_ERROR)
    # A compiler may be slow because the machine is busy. A kernel that has not returned by now hangs.
    kind = FailureKind.HANG if error.stage in ("running", "timing") else None
    return Refusal(reason, kind, lasting=kind is not None)


def _compatible(candidates: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Mapping[str, Any]]]:
    """``candidates`` in groups without backends that exclude each other."""
    groups: list[dict[str, Mapping[str, Any]]] = [{}]
    names: list[set[str]] = [set()]
    asked_of = [str(asked.get("backend")) for asked in candidates.values()]
    pairs = [pair.split("|") for pair in excluding(asked_of)]
    for key, asked in candidates.items():
        name = str(asked.get("backend"))
        others = {one for pair in pairs if name in pair for one in pair if one != name}
        at = next((number for number, there in enumerate(names) if not there & others), len(groups))
        if at == len(groups):
            groups.append({})
            names.append(set())
        groups[at][key] = asked
        names[at].add(name)
    return groups


def _by_computation(candidates: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Mapping[str, Any]]]:
    found: dict[Any, dict[str, Mapping[str, Any]]] = {}
    for key, asked in candidates.items():
        found.setdefault(asked.get("digest"), {})[key] = asked
    return list(found.values())


def _answer(reply: Mapping[str, Any]) -> Answer:
    if "reason" in reply:
        kind = None if reply["kind"] is None else FailureKind(reply["kind"])
        return Refusal(reply["reason"], kind, reply["lasting"])
    return Cost(reply["seconds"], reply["low"], reply["high"], reply["runs"], is_doubtful=reply["doubtful"])
