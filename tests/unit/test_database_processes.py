"""CostDatabase in a file under several processes, and under kill -9: real processes, no threads in their place."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from unity_collage.database.costs import CostDatabase
from unity_collage.plan.costs import Cost

FINGERPRINT = "threads: 2"
WRITERS, EACH = 8, 15

PATIENCE = 600.0
"""Seconds: how long anything may take on a busy machine."""


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    """Processes that have loaded the package already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["unity_collage.database.costs", "sqlalchemy.dialects.sqlite"])
    yield context


def write_some(path: Path, writer: int, start: Barrier) -> None:
    """Keys of its own and one that all write, on a file that none of them has made before."""
    start.wait(PATIENCE)
    with CostDatabase(path) as database:
        for number in range(EACH):
            database.put(f"{writer}:{number}", FINGERPRINT, "relu", Cost(1e-6), workload=f"function {number}")
            database.put("everybody's", FINGERPRINT, "relu", Cost(writer + number / 100))
            assert f"{writer}:{number}" in database.get([f"{writer}:{number}"], FINGERPRINT)


def test_eight_processes_write_at_once(tmp_path: Path, processes: ForkServerContext) -> None:
    path, start = tmp_path / "costs.sqlite", processes.Barrier(WRITERS)
    writers = [processes.Process(target=write_some, args=(path, writer, start)) for writer in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(PATIENCE)
    assert [process.exitcode for process in writers] == [0] * WRITERS
    with CostDatabase(path, read_only=True) as database:
        assert len(database) == WRITERS * EACH + 1
        assert len(database.workloads({cost.workload for cost in database.costs()})) == EACH
        shared = database.get(["everybody's"], FINGERPRINT)["everybody's"].seconds
        assert shared in [writer + (EACH - 1) / 100 for writer in range(WRITERS)]


def write_until_killed(path: Path, name: int, kept: Connection) -> None:
    """Say of each cost that it is kept, once it is."""
    database = CostDatabase(path)
    for number in range(1_000_000):
        database.put(
            f"{name}:{number}", FINGERPRINT, "relu", Cost(1e-6), workload=f"function {name}:{number}"
        )
        kept.send(number)


def killed(path: Path, name: int, processes: ForkServerContext, after: float) -> int:
    """How many costs a writer says it has kept before it is killed at some moment."""
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=write_until_killed, args=(path, name, sender))
    process.start()
    sender.close()
    said = receiver.recv() + 1
    time.sleep(after)
    process.kill()
    process.join()
    assert process.exitcode == -9
    while True:
        try:
            said = receiver.recv() + 1
        except EOFError:
            return said


def test_kill_9_loses_at_most_what_was_being_written(tmp_path: Path, processes: ForkServerContext) -> None:
    path, moments = tmp_path / "costs.sqlite", random.Random(0)
    said = {name: killed(path, name, processes, moments.uniform(0, 0.1)) for name in range(10)}
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with CostDatabase(path) as database:
        for name, count in said.items():
            numbers = {
                int(cost.key.split(":")[1]) for cost in database.costs() if cost.key.startswith(f"{name}:")
            }
            assert numbers in ({*range(count)}, {*range(count + 1)})
        assert len(database.workloads(cost.workload for cost in database.costs())) == len(database)
        database.put("after", FINGERPRINT, "relu", Cost(1e-6))
