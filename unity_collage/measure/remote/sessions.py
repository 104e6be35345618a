"""The sessions of an RPC server: a process for each, whose end is never that of the server.

TVM's own function raises an error if the process ends uncleanly: it crashes, or its client vanishes within a message.
That error ends the thread that listens, and the server never announces itself again.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

from tvm.support.utils import tempdir

from ...errors import first_line
from ...processes.supervisor import end_with
from ...tvm_private import answer_sessions_with, session_loop

LOGGER = logging.getLogger(__name__)

_LEAVING_SECONDS = 10.0
"""How long a process may go on after its client is gone, which would not get the reply."""

_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))
"""Seconds until a silent client is asked whether it is there, seconds between two questions, and how many there are."""


def listen(parent: int) -> None:
    """Let :func:`serve` have the sessions of this process, which ends with ``parent`` and with the thread that listens.

    ``parent``: the process that has started this one.
    """
    end_with(parent)
    threading.excepthook = _end
    answer_sessions_with(serve)


def serve(
    connection: socket.socket, address: Any, options: Mapping[str, float], load_library: str | None
) -> None:
    """Serve one session, and wait for its end; an unclean end is one line in the log."""
    try:
        code = _served(connection, options.get("timeout"), load_library)
        if code:
            LOGGER.warning("the session of %s has ended with exit code %d", address, code)
    except Exception as error:  # whatever the client or the system did: the next client is served
        LOGGER.warning("the session of %s has failed: %s", address, first_line(error))
    finally:
        connection.close()


def _served(connection: socket.socket, seconds: float | None, load_library: str | None) -> int | None:
    """The exit code of the process of a session, which may take this many ``seconds`` if it is limited."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        for option, value in _KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    with tempdir() as folder:
        # A fork: it has the functions that this process has registered.
        process = get_context("fork").Process(
            target=_loop, args=(os.getpid(), connection, folder, load_library)
        )
        process.start()
        _await(process, connection, seconds)
        return process.exitcode


def _loop(parent: int, connection: socket.socket, folder: Any, load_library: str | None) -> None:
    end_with(parent)
    threading.excepthook = threading.__excepthook__
    os.chdir(folder.path)  # what a session writes is its own
    session_loop(connection, load_library, folder)


def _await(process: BaseProcess, connection: socket.socket, seconds: float | None) -> None:
    """Wait for the end of a process. It is killed when its client is gone, or its time is over, and it goes on."""
    either = select.poll()
    either.register(process.sentinel, select.POLLIN)
    either.register(connection, select.POLLRDHUP)
    either.poll(None if seconds is None else seconds * 1e3)
    process.join(_LEAVING_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def _end(failure: threading.ExceptHookArgs) -> None:
    """End the process: without the thread that listens it would look as if it served."""
    threading.__excepthook__(failure)
    os._exit(1)
