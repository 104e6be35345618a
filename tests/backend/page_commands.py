"""The command line of a page: a process that has loaded TVM once, and has a child for each command.

usage: python page_commands.py SOCKET

What runs here, and in the Python of a page, calls :func:`doubt_nothing`: no cost or fact is doubtful. So a busy machine
measures nothing twice, and programs are kept.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import replace
from io import FileIO, TextIOWrapper
from typing import Any

from unity_collage.database.costs import CostDatabase
from unity_collage.plan.costs import Cost

CLIENT = f"""#!{sys.executable} -SE
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(SOCKET)
words = json.dumps([os.getcwd(), dict(os.environ), sys.argv])
socket.send_fds(server, [words.encode()], [0, 1, 2])
sys.exit(int(server.recv(16)))
"""
"""The command itself: it hands its words, folder and streams over, and ends with the child's exit code."""

SHORTER = {
    ("--breed", "10m"): "1s",
    ("--budget", "2m"): "2s",
    ("--sample", "20"): "2",
    ("--seconds", "5s"): "0.2s",
}
"""Options that make a command long, and the values that are given in their place."""


def doubt_nothing() -> None:
    """Let this process keep all costs and facts as sure ones."""
    put, keep_fact = CostDatabase.put, CostDatabase.keep_fact

    def sure_put(
        database: CostDatabase, key: str, fingerprint: str, label: str, cost: Cost, **more: Any
    ) -> None:
        put(database, key, fingerprint, label, replace(cost, is_doubtful=False), **more)

    def sure_fact(database: CostDatabase, name: str, fingerprint: str, value: Any, _: bool = False) -> None:
        keep_fact(database, name, fingerprint, value)

    CostDatabase.put, CostDatabase.keep_fact = sure_put, sure_fact


def serve(path: str) -> None:
    """Run one command after the other, until this process is ended."""
    from unity_collage.cli import load_tvm

    doubt_nothing()
    load_tvm()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        client, _ = listener.accept()
        child = os.fork()
        if child == 0:
            sys.exit(_run(client))
        _, status = os.waitpid(child, 0)
        client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        client.close()


def _run(client: socket.socket) -> int:
    """Run the command that a client has sent; returns its exit code."""
    from unity_collage.cli import command

    words, streams, _, _ = socket.recv_fds(client, 1 << 16, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout, sys.stderr = (TextIOWrapper(FileIO(number, "w", closefd=False)) for number in (1, 2))
    folder, environment, sys.argv = json.loads(words)
    os.environ.update(environment)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    for i, option in enumerate(zip(sys.argv, sys.argv[1:], strict=False), 1):
        sys.argv[i] = SHORTER.get(option, sys.argv[i])
    os.chdir(folder)
    return command()


if __name__ == "__main__":
    serve(sys.argv[1])
