"""A process with TVM loaded, which forks others: ``python -m unity_collage.processes.template CONNECTION MODULE...``.

Importing TVM and the MODULEs takes seconds. :mod:`.forking` starts one template in a process, and asks it for
each process that needs them. The fork becomes a :mod:`.supervisor`, as if it had been started by itself. The template
has one thread, and has loaded no library that makes kernels. It ends when its parent does.

Its first packet says that it has imported them. A request is a packet of JSON with two file descriptors: the connection
of the fork, and the file for what it prints. The answer is the number of the fork, with a descriptor of it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module, invalidate_caches
from typing import Any

from ..ffi import import_without_torch
from . import supervisor

_MOST_BYTES = 1 << 20


def _become(request: dict[str, Any], connection: int, output: int) -> list[str]:
    """Give this fork the state of a new process; returns the arguments of the supervisor."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for unused in (nothing, output):
        os.close(unused)
    os.chdir("/")
    os.sched_setaffinity(0, request["cores"])
    os.nice(request["niceness"] - os.nice(0))
    _look_for_modules_in(request["environment"].get("PYTHONPATH", ""))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.set_inheritable(connection, True)
    return [str(connection), request["module"]]


def _look_for_modules_in(path: str) -> None:
    """Use this ``PYTHONPATH`` in place of the one that Python was started with."""
    before, wanted = (
        [part for part in text.split(os.pathsep) if part] for text in (os.environ.get("PYTHONPATH", ""), path)
    )
    if before != wanted:
        sys.path[:] = [*wanted, *(part for part in sys.path if part not in before)]
        invalidate_caches()


def _wait_for_ended(*_: object) -> None:
    """Wait for the forks that have ended. Then their time is in that of this process, and is not the load of others."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(connection: int, loaded: Sequence[str]) -> None:
    """Fork for each request, until the parent closes the connection; returns in forks only, when they have run."""
    import_without_torch("tvm.relax")
    for module in loaded:
        import_module(module)
    gc.collect()
    gc.freeze()  # the garbage collector of a fork would write to the memory that it shares
    signal.signal(signal.SIGCHLD, _wait_for_ended)
    # The connection alone does not show the end of the parent: a fork of the parent may hold a copy of the other end.
    life = os.pidfd_open(os.getppid())
    with socket.socket(fileno=connection) as parent:
        with suppress(ConnectionError):  # a parent that has ended is noticed below
            parent.send(b"ready")
        while True:
            if life in select.select([parent, life], (), ())[0]:
                os._exit(0)
            line, files, _, _ = socket.recv_fds(parent, _MOST_BYTES, 2)
            if not line:
                os._exit(0)
            # A fork that ends at once stays until there is a descriptor of it: its number could be another's by then.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            pid = os.fork()
            if pid == 0:
                os.close(life)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
                break
            for file in files:
                os.close(file)
            pidfd = os.pidfd_open(pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            socket.send_fds(parent, [str(pid).encode()], [pidfd])
            os.close(pidfd)
    supervisor.main(os.getppid(), *_become(json.loads(line), *files))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
