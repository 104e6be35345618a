"""CostDatabase on a real PostgreSQL server: all that a file can do, for a team."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from multiprocessing.synchronize import Barrier

import pytest
from postgresql_server import REQUIRED, server, why_unavailable
from sqlalchemy import make_url

from unity_collage.cli import main as cli
from unity_collage.database.costs import CostDatabase, FailureKind, Quarantined
from unity_collage.database.exchange import contents, from_lines, merge, to_lines
from unity_collage.database.prune import Prune, doomed, remove
from unity_collage.errors import DatabaseError
from unity_collage.plan.costs import Cost

HERE = "backend: onednn\nthreads: 2"
COST = Cost(2e-6, 1.5e-6, 2.5e-6, 15)
PASSING = Cost(None, reason="no answer within 60 s")
WRITERS, EACH = 8, 15
PATIENCE = 600.0
"""Seconds: how long anything may take on a busy machine."""

_NUMBERS = count()


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    """The URL of a database on a server; without one the tests are skipped, or fail where that is asked for."""
    reason = why_unavailable()
    if reason is not None:
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(reason)
    with server() as url:
        yield url


@pytest.fixture
def url(running: str) -> str:
    """An empty database of its own for each test."""
    import psycopg

    name = f"costs{next(_NUMBERS)}"
    with psycopg.connect(running, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return changed(running, database=name)


@pytest.fixture
def database(url: str) -> Iterator[CostDatabase]:
    with CostDatabase(url) as opened:
        yield opened


def changed(url: str, **parts: str | int) -> str:
    return make_url(url).set(**parts).render_as_string(hide_password=False)


def test_costs_quarantine_and_facts_come_back(database: CostDatabase, url: str) -> None:
    database.put("key", HERE, "conv2d", COST, backend="onednn", workload="a text")
    database.quarantine(Quarantined("key", "3.2", "conv2d", "onednn", FailureKind.HANG, "no answer"))
    database.keep_fact("launch", HERE, 5e-7)
    with CostDatabase(url, read_only=True) as again:
        assert again.get(["key"], HERE) == {"key": replace(COST, origin="database")}
        assert again.quarantined(["key"], "3.2")["key"].kind is FailureKind.HANG
        assert again.fact("launch", HERE) == 5e-7
        (cost,) = again.costs()
        assert again.fingerprints() == {cost.fingerprint: HERE}
        assert again.workloads([cost.workload]) == {cost.workload: "a text"}
        with pytest.raises(DatabaseError, match="cannot execute INSERT in a read-only transaction"):
            again.put("other", HERE, "conv2d", COST)


def test_the_last_writer_wins_but_a_timeout_not_over_a_cost(database: CostDatabase) -> None:
    def kept(cost: Cost, lasting: bool = True) -> float | str:
        database.put("key", HERE, "conv2d", cost, lasting=lasting)
        found = database.get(["key"], HERE)["key"]
        return found.seconds or found.reason

    assert kept(PASSING, lasting=False) == "no answer within 60 s"
    assert kept(COST) == 2e-6
    assert kept(PASSING, lasting=False) == 2e-6
    assert kept(Cost(None, reason="wrong numbers")) == "wrong numbers"


def test_a_server_and_a_file_hold_the_same(database: CostDatabase, tmp_path) -> None:
    keys = ["onednn:a:L2", "tvm:B:L2", "tvm:a:L2", "openblas:\u00fc:L2"]
    for key in keys:
        database.put(key, HERE, "conv2d", COST, workload=key)
    file = CostDatabase(tmp_path / "costs.sqlite")
    assert [part.added for part in merge(file, contents(database))] == [4, 0, 0, 1, 4]
    lines = list(to_lines(contents(database)))
    assert list(to_lines(contents(file))) == lines
    file.put("tvm:a:L2", HERE, "conv2d", Cost(1e-6))
    merged = {part.content: part for part in merge(database, from_lines(to_lines(contents(file)), "export"))}
    assert (merged["costs"].added, merged["costs"].replaced, merged["costs"].kept) == (0, 1, 3)
    assert merged["workloads"].kept == 4


def test_pruning_takes_the_texts_too(database: CostDatabase) -> None:
    database.put("old", HERE, "conv2d", COST, workload="old")
    between = time.time()
    database.put("new", "threads: 4", "conv2d", COST, workload="new")
    rows = doomed(database, Prune(before=between))
    remove(database, rows)
    assert [row["key"] for row in rows.costs] == ["old"]
    assert [cost.key for cost in database.costs()] == ["new"]
    assert list(database.fingerprints().values()) == ["threads: 4"]


def write_some(url: str, writer: int, start: Barrier) -> None:
    start.wait(PATIENCE)
    with CostDatabase(url) as database:
        for number in range(EACH):
            database.put(f"{writer}:{number}", HERE, "relu", Cost(1e-6), workload=f"function {number}")
            database.put("everybody's", HERE, "relu", Cost(1e-6))


def write_until_killed(url: str) -> None:
    with CostDatabase(url) as database:
        for number in count():
            database.put(f"killed:{number}", HERE, "relu", Cost(1e-6))


def test_eight_processes_make_the_tables_and_write_at_once_and_one_is_killed(url: str) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["unity_collage.database.costs", "psycopg", "sqlalchemy.dialects.postgresql"]
    )
    start = context.Barrier(WRITERS)
    victim = context.Process(target=write_until_killed, args=(url,))
    writers = [context.Process(target=write_some, args=(url, writer, start)) for writer in range(WRITERS)]
    for process in (victim, *writers):
        process.start()
    for process in writers:
        process.join(PATIENCE)
    victim.kill()
    victim.join()
    assert [process.exitcode for process in (victim, *writers)] == [-9, *[0] * WRITERS]
    with CostDatabase(url) as database:
        keys = [cost.key for cost in database.costs()]
        assert len([key for key in keys if not key.startswith("killed:")]) == WRITERS * EACH + 1
        numbers = sorted(int(key.split(":")[1]) for key in keys if key.startswith("killed:"))
        assert numbers == list(range(len(numbers)))
        database.put("after", HERE, "relu", Cost(1e-6))


def test_other_tables_of_the_team_are_no_obstacle(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE costs (x INTEGER)")
    with CostDatabase(url) as database:
        database.put("key", HERE, "conv2d", COST)
        assert len(database) == 1


MISTAKES: dict[str, tuple[Callable[[str], str], str]] = {
    "no such server": (lambda url: changed(url, port=1), "Connection refused"),
    "no such host": (lambda url: changed(url, host="nowhere.invalid"), "failed to resolve host 'nowhere.invalid'"),
    "a wrong password": (
        lambda url: changed(url, password="guessed"), 'password authentication failed for user "collage"',
    ),
    "no such database": (lambda url: changed(url, database="none"), 'database "none" does not exist'),
    "another kind of server": (
        lambda url: changed(url, drivername="mysql"), "mysql is not supported: a file is SQLite",
    ),
    "no URL": (lambda url: url.replace("127.0.0.1:", "127.0.0.1:port"), "this is not a database URL"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_line_without_the_password(
    url: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make, reason = MISTAKES[what]
    assert cli.main(["db", "info", "--database", make(url)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("unity-collage: costs cannot be read from ") and reason in line
    assert "pass" not in line.replace(reason, "") and "guessed" not in line


def test_an_older_schema_is_named(database: CostDatabase, url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE collage_schema SET version = 1")
    with pytest.raises(
        DatabaseError, match="it was written with schema 1, and this version of unity_collage has"
    ):
        CostDatabase(url)


def test_a_connection_that_was_lost_is_made_anew(database: CostDatabase, running: str) -> None:
    import psycopg

    database.put("before", HERE, "relu", COST)
    with psycopg.connect(running, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                           " AND application_name = 'unity_collage'")  # fmt: skip
    database.put("after", HERE, "relu", COST)
    assert len(database) == 2


def test_without_psycopg_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseError) as caught:
        CostDatabase("postgresql://host/costs")
    assert str(caught.value) == (
        "costs cannot be kept in postgresql://host/costs: "
        "PostgreSQL needs the package psycopg: pip install 'unity_collage[postgresql]'"
    )
