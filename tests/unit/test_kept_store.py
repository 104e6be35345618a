"""The folder of kept programs: what is damaged goes, what is too large or cannot be written is not kept."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unity_collage.cli.db_kept import kept_told, remove_kept
from unity_collage.database.costs import CostDatabase
from unity_collage.errors import CollageError
from unity_collage.kept import store as kept
from unity_collage.kept.store import ProgramStore, folder_beside
from unity_collage.lowering.seal import facts_in, seal

KEY = "0123abcd"


def writes(program: bytes, **facts: Any) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        path.write_bytes(program)
        seal(path, facts)

    return save


def stored(store: ProgramStore, program: bytes, name: str, **fields: Any) -> None:
    file = store.put(KEY, writes(program, name=name), **fields)
    assert file is not None
    file.close()


def found(store: ProgramStore) -> str | None:
    """The name in the facts of the program that the store gives back."""
    record = store.record(KEY)
    file = None if record is None else store.opened(KEY, record)
    if file is None:
        return None
    with file:
        return facts_in(file)["name"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_program_comes_back_with_its_record(tmp_path: Path) -> None:
    stored(ProgramStore(tmp_path / "programs"), b"program", "first", answers="abc", unfinished=0.25)
    store = ProgramStore(tmp_path / "programs")
    record = store.record(KEY)
    assert record is not None and (record.answers, record.unfinished) == ("abc", 0.25)
    assert found(store) == "first"
    assert store.record("another") is None


def test_a_new_program_replaces_the_one_of_before(tmp_path: Path) -> None:
    for name in ("first", "second"):
        stored(ProgramStore(tmp_path), b"program", name)
    assert found(ProgramStore(tmp_path)) == "second"
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize("suffix", [".record", ".so"])
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda _: b"", lambda data: b"??" + data[2:]])
def test_what_is_damaged_is_removed_and_kept_anew(
    tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes]
) -> None:
    store = ProgramStore(tmp_path)
    stored(store, b"program", "first")
    (path,) = tmp_path.glob(f"*{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    assert found(store) is None
    assert not list(tmp_path.glob("*.record"))
    stored(store, b"program", "second")
    assert found(store) == "second"


def test_without_a_folder_that_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = ProgramStore(tmp_path / "file" / "programs")
    assert store.put(KEY, writes(b"program")) is None
    assert store.record(KEY) is None


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), CollageError("cannot be written")])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, error: Exception) -> None:
    def save(path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    assert ProgramStore(tmp_path).put(KEY, save) is None
    assert names(tmp_path) == []


def test_the_programs_used_longest_ago_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ProgramStore(tmp_path)
    for number in range(4):
        file = store.put(f"key{number}", writes(bytes(10_000), name=str(number)))
        assert file is not None
        file.close()
        for path in tmp_path.glob(f"key{number}.*"):
            os.utime(path, (number, number))
    record = store.record("key0")
    assert record is not None
    file = store.opened("key0", record)  # it is used now
    assert file is not None
    file.close()
    monkeypatch.setattr(kept, "MOST_BYTES", 35_000)
    stored(store, b"program", "new")
    assert {name.partition(".")[0] for name in names(tmp_path)} == {KEY, "key0", "key2", "key3"}


def test_a_program_that_would_drive_out_the_others_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "LARGEST_BYTES", 5_000)
    assert ProgramStore(tmp_path).put(KEY, writes(bytes(6_000))) is None
    assert names(tmp_path) == []


_PUTS = """
import sys
from pathlib import Path
from unity_collage.kept.store import ProgramStore
from unity_collage.lowering.seal import facts_in, seal

def save(path):
    path.write_bytes(bytes(20_000))
    seal(path, {"name": sys.argv[2]})

store = ProgramStore(Path(sys.argv[1]))
for _ in range(50):
    store.put("0123abcd", save).close()
    record = store.record("0123abcd")
    file = record and store.opened("0123abcd", record)
    if file:
        assert facts_in(file)["name"] in ("one", "two")
        file.close()
"""


def test_two_processes_keep_one_program_at_once(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", _PUTS, str(tmp_path), name] for name in ("one", "two")]
    running = [subprocess.Popen(command) for command in commands]
    assert [process.wait() for process in running] == [0, 0]
    stored(ProgramStore(tmp_path), b"program", "last")
    assert found(ProgramStore(tmp_path)) == "last"


def test_the_command_for_databases_counts_and_removes_programs(tmp_path: Path) -> None:
    with CostDatabase(tmp_path / "costs.sqlite") as database:
        assert list(kept_told(database)) == []
        store = ProgramStore(tmp_path / "costs-programs")
        stored(store, bytes(200_000), "first")
        assert list(kept_told(database)) == ["1 kept program, 0.2 MB"]
        assert remove_kept(database, False, None, is_dry=False) == 0
        assert remove_kept(database, False, before=1.0, is_dry=False) == 0
        assert remove_kept(database, True, None, is_dry=True) == 1
        assert found(store) == "first"
        assert remove_kept(database, True, None, is_dry=False) == 1
        assert found(store) is None


def test_a_server_has_no_folder() -> None:
    assert folder_beside("postgresql://me@host/team") is None
    assert folder_beside("/x/costs.sqlite") == Path("/x/costs-programs")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeoutError("of a signal handler of the user")])
def test_what_the_user_interrupts_goes_on_and_leaves_nothing_behind(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(ProgramStore, "_write", interrupted)
    with pytest.raises(type(error)):
        ProgramStore(tmp_path).put(KEY, writes(b"program"))
    assert names(tmp_path) == []


def test_a_server_that_does_not_answer_is_no_time_limit_of_the_user(tmp_path: Path) -> None:
    def save(_path: Path) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    assert ProgramStore(tmp_path).put(KEY, save) is None
