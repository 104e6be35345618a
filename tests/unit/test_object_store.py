"""The store of object code: what is damaged, too old or not writable is compiled again, and never read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from unity_collage.lowering import object_store
from unity_collage.lowering.object_store import ObjectStore, current_store, using


def test_another_process_finds_what_was_stored(tmp_path: Path) -> None:
    ObjectStore(tmp_path / "objects").put("name", b"code")
    assert ObjectStore(tmp_path / "objects").get("name") == b"code"
    assert ObjectStore(tmp_path / "objects").get("other") is None


@pytest.mark.parametrize("damage", [lambda code: code[:-1], lambda _: b"", lambda code: code[:-1] + b"?"])
def test_a_damaged_file_counts_as_missing(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    ObjectStore(tmp_path).put("name", b"code")
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert ObjectStore(tmp_path).get("name") is None


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    ObjectStore(tmp_path).put("name", b"code")
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"")
    store = ObjectStore(tmp_path)
    assert store.get("name") is None
    store.put("name", b"code")
    assert ObjectStore(tmp_path).get("name") == b"code"


def test_a_store_that_is_only_read_writes_nothing(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "objects", read_only=True)
    store.put("name", b"code")
    assert store.get("name") == b"code"
    assert not (tmp_path / "objects").exists()


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = ObjectStore(tmp_path / "file" / "objects")
    store.put("name", b"code")
    assert store.get("name") == b"code"


def test_the_files_read_longest_ago_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        ObjectStore(tmp_path).put(f"name{number}", bytes(1000))
        os.utime(tmp_path / f"name{number}.code", (number, number))
    ObjectStore(tmp_path).get("name0")
    monkeypatch.setattr(object_store, "_ON_DISK_BYTES", 2500)
    ObjectStore(tmp_path).put("new", b"code")
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["name0", "name3", "new"]


def test_the_store_in_use_ends_with_its_block(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    before = current_store()
    with using(store):
        assert current_store() is store
    assert current_store() is before


def test_a_time_limit_of_the_user_is_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise TimeoutError("of the user")

    monkeypatch.setattr(Path, "replace", late)
    with pytest.raises(TimeoutError, match="of the user"):
        ObjectStore(tmp_path).put("name", b"code")
    assert not list(tmp_path.iterdir())
