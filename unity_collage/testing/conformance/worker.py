"""The worker process of the conformance kit, so that a backend, its rule and its kernels cannot harm the examiner.

Started as ``python -m unity_collage.testing.conformance.worker FD``; :mod:`unity_collage.processes.child` describes the
protocol. Each request is answered by any number of ``{"stage": ...}``, then by ``{"reply": {...}}`` or by
``{"reason": ..., "kind": ...}``.
"""

from __future__ import annotations

import atexit
import json
import resource
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from ... import runtime
from ...annotations import COMPILED_AS
from ...backends.base import Backend
from ...database.rows import FailureKind
from ...errors import CollageError, UnknownBackend
from ...graph import SubGraph, extract
from ...lowering.outlined import external_function
from ...machine import environment
from ...measure.cuda.bench import CudaBench
from ...measure.guard import watch
from ...measure.kernels import NoKernel
from ...measure.refusal import Refusal, Refused, refusal_of
from ...processes.serving import Say, serve_messages
from ...runtime import cuda
from ...runtime.vendors import VENDORS
from ...target import CUDA, cuda_target, host_target, target_of
from .. import fake_backend
from . import kernels
from .subject import Answer, Asked, Watch, resolve, why_no_rule, why_no_value

_SOME_DEVICE = "cuda -arch=sm_90"
"""The target for which rules for CUDA are examined if there is no device."""


class ConformanceWorker:
    """Answers requests about the backend that it imports first."""

    def __init__(self, say: Say, scope: ExitStack):
        self._say, self._scope = say, scope
        self._place = kernels.KernelPlace(host_target())
        self._backend: Any = None
        self._asked: dict[str, Asked] = {}
        self._allowed_threads = _threads() + runtime.num_threads() - 1

    def answer(self, request: Answer) -> None:
        """Send the reply to one request; ``ask`` is the name of a method, and the other fields are its arguments."""
        arguments = dict(request)
        method = getattr(self, arguments.pop("ask"))
        try:
            self._say({"reply": method(**arguments)})
        except Refused as refused:
            self._refuse(refused.refusal)
        except (NoKernel, CollageError) as error:
            self._refuse(Refusal(str(error), FailureKind.COMPILE_ERROR))
        except Exception as error:  # foreign code failed: its error becomes the reason
            self._refuse(refusal_of(error, FailureKind.RUN_ERROR))

    def meet(self, where: str) -> Answer:
        """Import the backend and ask whether it can be used here; the reply names what was loaded for that."""
        watch = Watch()
        try:
            self._backend = resolve(where)
        except UnknownBackend as error:
            return {"unknown": str(error)}
        answer: Answer = {"imported": watch.libraries(), "value": why_no_value(self._backend)}
        if answer["value"] is None:
            answer |= self._availability(watch)
            answer |= {"name": self._backend.name, "stays_in_ir": self._backend.codegen is None}
            answer["own_threads"] = self._backend.has_own_threads
            if ":" in where:
                self._scope.enter_context(fake_backend.only_backends(self._backend))
        return answer

    def _availability(self, watch: Watch) -> Answer:
        """What ``why_unavailable`` returns and loads, and on which kind of targets the kernels run.

        The kind is CUDA if the backend makes kernels for CUDA only. It may then load the driver and the CUDA runtime,
        since only they know the devices.
        """
        is_for_cuda = self._backend.kinds == {CUDA}
        missing = cuda.why_unavailable() if is_for_cuda else None
        watch.everything()
        reason = self._backend.why_unavailable()
        answer: Answer = {"unavailable": reason, "no_device": missing, "asked": watch.everything()}
        if is_for_cuda and reason is None and missing is None:
            self._use_device()
        elif is_for_cuda:
            self._place = kernels.KernelPlace(target_of(_SOME_DEVICE))
        return {**answer, "kind": self._place.target.kind.name}

    def _use_device(self) -> None:
        """Run kernels on the first CUDA device from now on.

        The driver reserves addresses for the memory of all devices, so addresses are not limited any more.
        """
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        bench = CudaBench()
        self._place = kernels.KernelPlace(cuda_target(), bench.outputs_of, bench.prepare)

    def rule(self) -> Answer:
        """What is wrong with the rule of the backend."""
        return {"problem": why_no_rule(self._backend, self._place.target)}

    def fingerprint(self) -> Answer:
        """The fingerprint of the backend, asked for twice."""
        texts = [self._backend.fingerprint() for _ in range(2)]
        return {"texts": [text if isinstance(text, str) else repr(text) for text in texts],
                "is_text": isinstance(texts[0], str)}  # fmt: skip

    def proposals(self, case: str, function: str) -> Answer:
        """The answers of the rule for one case."""
        return self._case(case, function).described()

    def kernel(self, case: str, function: str, number: int, threads: int | None = None) -> Answer:
        """Make and examine one proposed kernel; ``threads``: the new size of the pool.

        The reply is the reason if the library has no implementation of it on this device.
        """
        if threads is not None:
            self._allowed_threads += threads - runtime.num_threads()
            runtime.set_num_threads(threads)
        differs, func = None, self._case(case, function).kernel(number)
        try:
            for sized in kernels.at_sizes(func):
                differs = differs or kernels.examined(sized, self._backend, self._place, self._stage)
                func = sized
        except kernels.NotHere as reason:
            return {"not_here": str(reason)}
        surplus = max(0, _threads() - self._allowed_threads)
        self._allowed_threads += surplus
        return {"differs": differs, "surplus_threads": surplus, "conflict": runtime.why_pools_conflict(),
                "function": tvm.ir.save_json(func.without_attr(COMPILED_AS))}  # fmt: skip

    def declined(self, case: str, function: str, index: int) -> Answer:
        """Give the code generator a function that the rule has refused."""
        func = extract(SubGraph(self._case(case, function).graph, 1 << index))
        external = external_function(func, self._backend.name, "declined", "declined")
        self._stage("building")
        with kernels.compile_errors():
            self._backend.codegen([external], {}, {})
        return {}

    def together(self, functions: list[str]) -> Answer:
        """Make several kernels at once."""
        self._stage("building")
        kernels.together(_functions(functions), self._backend, self._place)
        return {}

    def export(self, functions: list[str], path: str) -> Answer:
        """Write a library with several kernels."""
        self._stage("exporting")
        kernels.export(_functions(functions), self._backend, self._place.target, Path(path))
        return {}

    def load(self, functions: list[str], path: str, kind: str) -> Answer:
        """Load and run a library for targets of a kind, in a process that has not imported the backend."""
        self._stage("loading")
        if kind == CUDA:
            self._use_device()
        for name in VENDORS:
            if runtime.why_unavailable(name) is None:
                runtime.load(name)
        kernels.load(_functions(functions), self._place.target, Path(path))
        return {}

    def _case(self, name: str, function: str) -> Asked:
        if name not in self._asked:
            assert isinstance(self._backend, Backend)
            self._asked[name] = Asked(self._backend, tvm.ir.load_json(function), self._place.target)
        return self._asked[name]

    def _stage(self, name: str) -> None:
        self._say({"stage": name})

    def _refuse(self, refusal: Refusal) -> None:
        kind = None if refusal.kind is None else refusal.kind.value
        self._say({"reason": refusal.reason, "kind": kind})


def _functions(texts: list[str]) -> list[relax.Function]:
    return [tvm.ir.load_json(text) for text in texts]


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _watched_line(reason: str) -> str:
    """The message about a touch of a guard page."""
    return json.dumps({"reason": reason, "kind": FailureKind.WROTE_OUTSIDE.value, "ended": True}) + "\n"


def _ready(hello: Answer, connection: int, say: Say) -> Callable[[Answer], None]:
    sys.path += [folder for folder in hello["path"] if folder not in sys.path]
    runtime.set_num_threads(hello["threads"])
    watch(connection, _watched_line)
    environment.limit_memory(hello["memory_bytes"])
    scope = ExitStack()
    atexit.register(scope.close)
    return ConformanceWorker(say, scope).answer


if __name__ == "__main__":
    serve_messages(_ready)
