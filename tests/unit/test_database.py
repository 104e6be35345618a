"""CostDatabase in a file: what is kept comes back, and whatever is wrong with the file is one line."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import pytest
from sqlalchemy import Connection, func, select

from unity_collage.database import location, schema
from unity_collage.database.connections import Connections
from unity_collage.database.costs import CostDatabase, FailureKind, Quarantined, default_path
from unity_collage.database.upsert import put_row
from unity_collage.errors import DatabaseError
from unity_collage.plan.costs import Cost

COST = Cost(2e-6, 1.5e-6, 2.5e-6, 15)
REFUSED = Cost(None, reason="wrong numbers")
HERE, THERE = "backend: onednn\nthreads: 2", "backend: onednn\nthreads: 4"


@pytest.fixture
def database(tmp_path: Path) -> CostDatabase:
    return CostDatabase(tmp_path / "costs.sqlite")


def entry(kind: FailureKind = FailureKind.CRASH, version: str = "oneDNN 3.2") -> Quarantined:
    return Quarantined("onednn:abc:L2", version, "conv2d", "onednn", kind, "SIGSEGV")


def test_a_cost_comes_back_where_it_was_measured(database: CostDatabase) -> None:
    database.put("key", HERE, "conv2d", COST)
    assert database.get(["key", "other"], HERE) == {
        "key": Cost(COST.seconds, COST.low, COST.high, COST.runs, "database")
    }
    assert database.get(["key"], THERE) == {}
    assert len(database) == 1


PASSING = (Cost(None, reason="no answer within 60 s"), False)


@pytest.mark.parametrize(
    ("earlier", "later", "kept"),
    [
        ((COST, True), (Cost(3e-6), True), 3e-6),
        ((COST, True), (REFUSED, True), "wrong numbers"),
        ((COST, True), PASSING, 2e-6),
        (PASSING, (COST, True), 2e-6),
        (PASSING, (REFUSED, True), "wrong numbers"),
        ((REFUSED, True), PASSING, "no answer within 60 s"),
        ((COST, False), PASSING, 2e-6),
    ],
)
def test_the_last_writer_wins_but_a_timeout_not_over_a_cost(
    database: CostDatabase, earlier: tuple[Cost, bool], later: tuple[Cost, bool], kept: float | str
) -> None:
    for cost, lasting in (earlier, later):
        database.put("key", HERE, "conv2d", cost, lasting=lasting)
    found = database.get(["key"], HERE)["key"]
    assert (found.seconds or found.reason) == kept


def test_more_keys_than_one_question_takes(database: CostDatabase) -> None:
    for number in (0, 700, 1499):
        database.put(f"key{number}", HERE, "conv2d", COST)
    found = database.get((f"key{number}" for number in range(1500)), HERE)
    assert sorted(found) == ["key0", "key1499", "key700"]


def test_quarantine_hangs_on_the_version_of_the_backend(database: CostDatabase) -> None:
    database.quarantine(entry())
    database.quarantine(entry(FailureKind.HANG))
    found = database.quarantined(["onednn:abc:L2", "onednn:other:L2"], "oneDNN 3.2")
    assert [(key, one.kind, one.reason) for key, one in found.items()] == [
        ("onednn:abc:L2", FailureKind.HANG, "SIGSEGV")
    ]
    assert found["onednn:abc:L2"].created > 0
    assert database.quarantined(["onednn:abc:L2"], "oneDNN 3.3") == {}


def test_facts_are_plain_data(database: CostDatabase) -> None:
    peaks = {"flops": 5e11, "bandwidth": [1e11, 2e10]}
    assert database.fact("peaks", HERE) is None
    database.keep_fact("peaks", HERE, 0.0)
    database.keep_fact("peaks", HERE, peaks)
    assert database.fact("peaks", HERE) == peaks
    assert database.fact("peaks", THERE) is None
    with pytest.raises(ValueError, match="not JSON compliant"):
        database.keep_fact("peaks", HERE, float("nan"))


def test_fingerprints_and_functions_are_kept_once_as_text(database: CostDatabase) -> None:
    for key in ("onednn:a:L2", "tvm:a:L2"):
        database.put(key, HERE, "relu", COST, backend=key.partition(":")[0], workload='{"root_index": 0}')
    costs = database.costs()
    assert [cost.backend for cost in costs] == ["onednn", "tvm"]
    assert database.fingerprints() == {costs[0].fingerprint: HERE}
    assert database.workloads([cost.workload for cost in costs]) == {costs[0].workload: '{"root_index": 0}'}


def test_the_file_is_plain_values_in_a_write_ahead_log(tmp_path: Path, database: CostDatabase) -> None:
    database.put("key", HERE, "conv2d", COST, workload="text")
    database.quarantine(entry())
    with sqlite3.connect(tmp_path / "costs.sqlite") as file:
        assert file.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        for table in schema.CONTENT.values():
            rows = file.execute(f"SELECT * FROM {table.name}").fetchall()
            assert all(value is None or isinstance(value, str | int | float) for row in rows for value in row)


def test_two_open_databases_see_each_other(tmp_path: Path, database: CostDatabase) -> None:
    with CostDatabase(tmp_path / "costs.sqlite") as other:
        other.put("key", HERE, "conv2d", COST)
    assert database.get(["key"], HERE)


def test_without_a_place_costs_are_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with CostDatabase() as database:
        assert database.path == default_path() and default_path().is_relative_to(tmp_path)


def _text(path: Path) -> Path:
    path.write_text("these are no costs, but quite some text of mine\n" * 50)
    return path


def _damaged(path: Path) -> Path:
    """The header is that of a database, what follows is not."""
    with CostDatabase(path) as database:
        database.put("key", HERE, "conv2d", COST)
    path.write_bytes(path.read_bytes()[:100] + b"\x55" * 40_000)
    return path


def _version(path: Path, version: int) -> Path:
    CostDatabase(path).close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE collage_schema SET version = ?", (version,))
    return path


def _tables(path: Path, *names: str) -> Path:
    with sqlite3.connect(path) as file:
        for name in names:
            file.execute(f"CREATE TABLE {name} (x)")
    return path


def _under_a_file(path: Path) -> Path:
    path.touch()
    return path / "costs.sqlite"


WRONG: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a text": (_text, "file is not a database"),
    "a damaged file": (_damaged, "database disk image is malformed"),
    "a folder": (lambda path: path.parent, "it is a folder"),
    "a folder that is a file": (_under_a_file, "is not a folder"),
    "the first schema": (
        lambda path: _tables(path, "costs"),
        "it was written with schema 1, and this version of unity_collage has schema 3",
    ),
    "a later schema": (lambda path: _version(path, 9), "it was written with schema 9"),
    "something else": (lambda path: _tables(path, "bookmarks"), "it holds something else: bookmarks"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_database_of_costs_says_so_in_one_line(tmp_path: Path, what: str, read_only: bool) -> None:
    make, reason = WRONG[what]
    path = make(tmp_path / "costs.sqlite")
    with pytest.raises(DatabaseError) as caught:
        CostDatabase(path, read_only=read_only).get(["key"], HERE)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"costs cannot be {'read from' if read_only else 'kept in'} {path}: ")
    assert reason in line or (read_only and "there is no such file" in line)


def test_reading_makes_no_file(tmp_path: Path) -> None:
    for options in ({"read_only": True}, {"create": False}):
        with pytest.raises(DatabaseError, match="there is no such file"):
            CostDatabase(tmp_path / "none.sqlite", **options)
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(DatabaseError, match="it holds no costs yet"):
        CostDatabase(tmp_path / "empty.sqlite", read_only=True)
    assert [path.name for path in tmp_path.iterdir()] == ["empty.sqlite"]


def test_what_is_only_read_is_never_written(database: CostDatabase, tmp_path: Path) -> None:
    database.put("key", HERE, "conv2d", COST)
    with CostDatabase(tmp_path / "costs.sqlite", read_only=True) as reader:
        assert reader.read_only
        assert reader.get(["key"], HERE)
        with pytest.raises(DatabaseError, match="attempt to write a readonly database"):
            reader.put("key", HERE, "conv2d", REFUSED)


def test_a_file_that_may_not_be_written_can_be_read() -> None:
    """As another user, where the tests run as root: to root nothing is read-only."""
    with TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "costs.sqlite"
        with CostDatabase(path) as database:
            database.put("key", HERE, "conv2d", COST)
        path.chmod(0o444)
        folder.chmod(0o555)
        try:
            assert in_a_process_without_rights(
                lambda: "key" in CostDatabase(path, read_only=True).get(["key"], HERE)
            )
            assert in_a_process_without_rights(lambda: "readonly" in _why_not_writable(path))
        finally:
            folder.chmod(0o755)


def _why_not_writable(path: Path) -> str:
    try:
        CostDatabase(path).put("key", HERE, "conv2d", REFUSED)
    except DatabaseError as error:
        return str(error)
    return ""


def in_a_process_without_rights(holds: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            os._exit(0 if holds() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def fill_up(database: CostDatabase) -> None:
    """Let the disk be full for this database, as SQLite sees it."""
    with database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")


def test_what_cannot_be_stored_is_kept_in_memory(tmp_path: Path) -> None:
    database = CostDatabase(tmp_path / "costs.sqlite", goes_on=True)
    database.put("before", HERE, "conv2d", COST)
    fill_up(database)
    database.put("key", HERE, "conv2d", COST, workload="x" * 100_000)
    database.quarantine(entry())
    database.keep_fact("peaks", HERE, {"flops": 1.0})
    assert sorted(database.get(["before", "key"], HERE)) == ["before", "key"]
    assert database.quarantined(["onednn:abc:L2"], "oneDNN 3.2")
    assert database.fact("peaks", HERE) == {"flops": 1.0}
    assert database.not_kept == 3
    assert "costs.sqlite: database or disk is full" in str(database.why_not_kept)
    assert sorted(CostDatabase(tmp_path / "costs.sqlite").get(["before", "key"], HERE)) == ["before"]


def test_a_database_that_breaks_while_it_is_used_is_replaced_by_memory(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    database = CostDatabase(path, goes_on=True)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE collage_costs")
    assert database.get(["key"], HERE) == {}
    database.put("key", HERE, "conv2d", COST)
    assert "key" in database.get(["key"], HERE) and "no such table" in str(database.why_not_kept)


def test_a_database_that_can_only_be_read_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "costs.sqlite"
    CostDatabase(path).put("key", HERE, "conv2d", COST)
    monkeypatch.setattr(location, "_prepare", _refused)
    with pytest.raises(DatabaseError, match="attempt to write a readonly database"):
        CostDatabase(path)
    database = CostDatabase(path, goes_on=True)
    assert "key" in database.get(["key"], HERE) and database.not_kept == 0
    database.put("other", HERE, "conv2d", COST)
    assert "other" in database.get(["other"], HERE) and database.not_kept == 1


def _refused(*_: object) -> None:
    raise sqlite3.OperationalError("attempt to write a readonly database")


def test_without_a_database_to_read_the_error_stays(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="it is a folder"):
        CostDatabase(tmp_path, goes_on=True)


def test_a_server_that_is_away_for_a_moment_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_collage.database.costs._PAUSES", (0.0, 0.0))
    database = CostDatabase(tmp_path / "costs.sqlite", goes_on=True)
    database.put("key", HERE, "conv2d", COST)
    database.path = None  # as if it were a server
    reading, failures = database.reading, iter(["the connection is lost"])

    def failing_once() -> AbstractContextManager[Connection]:
        if reason := next(failures, None):
            raise DatabaseError(reason)
        return reading()

    monkeypatch.setattr(database, "reading", failing_once)
    assert "key" in database.get(["key"], HERE) and database.why_not_kept is None


def test_a_query_of_another_thread_undoes_nothing_in_memory() -> None:
    memory, is_read = Connections(None, read_only=False, create=True), Event()

    def read() -> None:
        assert _texts(memory) in (0, 1)
        is_read.set()

    reader = Thread(target=read)
    with memory.writing() as connection:
        put_row(connection, schema.WORKLOADS, {"digest": "1", "text": "a function"})
        reader.start()
        is_read.wait(0.2)  # it has to wait until the row is committed
    reader.join()
    assert _texts(memory) == 1


def _texts(memory: Connections) -> int:
    with memory.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(schema.WORKLOADS)).scalar_one())


def test_a_time_limit_of_the_user_is_no_broken_database(tmp_path: Path) -> None:
    """Later costs would be in memory only."""
    database = CostDatabase(tmp_path / "costs.sqlite", goes_on=True)
    with pytest.raises(TimeoutError, match="of the user"), database.reading():
        raise TimeoutError("of the user")
