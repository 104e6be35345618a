"""The machine that measures, or computes regions of programs: an RPC server of TVM with our functions.

``python -m unity_collage.measure.remote.server --tracker HOST:PORT --key KEY`` serves until it is ended. A session
sends its requests to one global function. Kernels run in a worker process of the session: when a kernel crashes it,
the session goes on. When the process of a session crashes, the server announces itself again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache, partial
from typing import Any

import tvm_ffi
from tvm.target import Target

from ... import runtime
from ...backends import registry
from ...cost.fingerprint import backend_version, cost_fingerprint
from ...cost.method import Method
from ...errors import first_line
from ...machine.caches import reported
from ...machine.last_level import LAST_LEVEL, caches_measured_apart, last_level_fingerprint
from ...machine.peaks import PEAKS, measured_apart, peaks_fingerprint
from ...program import Program
from ...program.loading import load
from ...target import host_target
from ..client import WorkerClient
from ..session import Session
from . import sessions
from .messages import FUNCTION, RUN, address, encoded, why_unavailable


@cache
def _session() -> Session:
    """The worker process of this session."""
    return Session()


def answer(text: str) -> str:
    """The reply to one request. It never raises: the client treats any error of a session as the loss of the server."""
    request = json.loads(text)
    try:
        return json.dumps(_ANSWERS[request["ask"]](request))
    except Exception as error:
        return json.dumps({"reason": f"{type(error).__name__}: {error}"})


@cache
def _program(name: str) -> Program:
    """A program that was uploaded in this session."""
    return load(_path(f"{name}.so"))


def run(name: str, inputs: int, *tensors: Any) -> str:
    """Run a program on tensors of this machine, ``inputs`` of which are its inputs and the others are for its results.

    It never raises: returns the reason why it failed, or an empty text.
    """
    try:
        results = tensors[inputs:]
        _program(str(name))(*tensors[:inputs], out=results[0] if len(results) == 1 else results)
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"
    return ""


def prepare(parent: int) -> None:
    """Register the functions that sessions of this process call, and answer them by :mod:`.sessions`.

    ``parent``: the process that has started this one, with which it ends.
    """
    sessions.listen(parent)
    tvm_ffi.register_global_func(FUNCTION, answer, override=True)
    tvm_ffi.register_global_func(RUN, run, override=True)


def _facts(request: dict[str, Any]) -> dict[str, Any]:
    """The target, the threads and the caches of this machine, its fingerprint, and that of each backend."""
    target = Target(json.loads(request["target"])) if request["target"] else host_target()
    method = Method(**request["method"])
    backends = {name: _backend(name, target, method) for name in request["backends"]}
    return {
        "target": str(host_target()),
        "threads": runtime.num_threads(),
        "fingerprints": {PEAKS: peaks_fingerprint(), LAST_LEVEL: last_level_fingerprint()},
        "caches": asdict(reported()),
        "backends": backends,
    }


@cache
def _limits() -> dict[str, Any]:
    """The third-level cache that this machine can use, and its peaks, measured now."""
    caches = caches_measured_apart()
    return {LAST_LEVEL: caches.l3_bytes, PEAKS: asdict(measured_apart(caches))}


def _backend(name: str, target: Target, method: Method) -> dict[str, str]:
    backend = registry.find(name)
    reason = "it is not installed" if backend is None else registry.why_unavailable(backend)
    if reason is not None:
        return {"reason": f"{name} cannot be used on the server: {reason}"}
    return {"fingerprint": cost_fingerprint(name, target, method), "version": backend_version(name)}


def _compare(request: dict[str, Any]) -> dict[str, Any]:
    candidates = {
        key: {**asked, "library": _path(asked["library"]), "constants": _path(asked["constants"])}
        for key, asked in request["candidates"].items()
    }
    answers = _client(request).compare(request["question"], candidates)
    return {key: encoded(found) for key, found in answers.items()}


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    return _client(request).ask(request["question"])


def _machine(_request: dict[str, Any]) -> dict[str, Any]:
    return _limits()


_ANSWERS = {"facts": _facts, "machine": _machine, "compare": _compare, "worker": _ask}


def _client(request: dict[str, Any]) -> WorkerClient:
    limits = request["timeout_seconds"], request["memory_bytes"]
    return _session().client(runtime.num_threads(), Method(**request["method"]), *limits)


def _path(name: str) -> str:
    """The path of a file that was uploaded in this session."""
    return str(tvm_ffi.get_global_func("tvm.rpc.server.workpath")(name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the process is ended; the result is the exit code, 1 if the process that serves ends by itself."""
    parser = argparse.ArgumentParser(
        prog="unity_collage.measure.remote.server", description="measure kernels for other machines"
    )
    parser.add_argument("--tracker", required=True, metavar="HOST:PORT", type=address)
    parser.add_argument("--key", required=True, help="the key of this kind of machine")
    parser.add_argument("--host", default="0.0.0.0", help="the address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=9090, help="the first port to try")
    options = parser.parse_args(arguments)
    if (reason := why_unavailable()) is not None:
        sys.stderr.write(f"{reason}\n")
        return 1
    from tvm import rpc

    last = options.port + 100
    server = rpc.Server(
        options.host, options.port, last, tracker_addr=options.tracker, key=options.key, silent=True,
        server_init_callback=partial(prepare, os.getpid()),
    )  # fmt: skip
    sys.stderr.write(f"measuring as {options.key!r} on port {server.port}\n")
    server.proc.join()
    sys.stderr.write("the process that serves has ended\n")
    return 1


if __name__ == "__main__":
    # The server process finds the callback by the name of its module, which is __main__ here.
    from unity_collage.measure.remote.server import main as imported_main

    sys.exit(imported_main())
