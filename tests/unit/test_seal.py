"""A saved program is verified before the dynamic loader opens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unity_collage.errors import CollageError
from unity_collage.lowering.library_file import copy, opened, reopened
from unity_collage.lowering.seal import facts_in, seal, why_not_sealed

LIBRARY = bytes(range(256)) * 5000
FACTS = {"inputs": ["вход", "a/b"], "number": 3}


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = tmp_path / "program.so"
    path.write_bytes(LIBRARY)
    seal(path, FACTS)
    return path


def test_facts_are_behind_the_library(sealed: Path) -> None:
    with sealed.open("rb") as file:
        assert why_not_sealed(file) is None
        assert facts_in(file) == FACTS
    assert sealed.read_bytes().startswith(LIBRARY)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "it is not a saved program of this version, or only a part of one"),
        (lambda data: LIBRARY, "only a part of one"),
        (lambda data: data[: len(data) // 2], "only a part of one"),
        (lambda data: data[:-1], "only a part of one"),
        (lambda data: data + b"\0", "only a part of one"),
        (lambda data: data[1:], "only a part of one"),
        (lambda data: b"\1" + data[1:], "it has changed since it was saved"),
        (lambda data: data.replace(b"a/b", b"a/c"), "it has changed since it was saved"),
        (lambda data: data[:-30] + b"\0" + data[-29:], "it has changed since it was saved"),
    ],
)
def test_a_file_that_is_not_as_it_was_saved_is_refused(
    sealed: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    changed = change(sealed.read_bytes())
    sealed.write_bytes(changed)
    with pytest.raises(CollageError, match=reason):
        opened(sealed)


def test_an_open_program_can_be_copied_when_its_name_is_gone(sealed: Path, tmp_path: Path) -> None:
    before = sealed.read_bytes()
    with opened(sealed) as file:
        sealed.unlink()
        with reopened(file) as again:
            copy(again, tmp_path / "copy.so")
    assert [path.name for path in tmp_path.iterdir()] == ["copy.so"]
    assert (tmp_path / "copy.so").read_bytes() == before


def test_a_program_that_was_overwritten_is_not_copied(sealed: Path) -> None:
    with opened(sealed) as file:
        sealed.write_bytes(LIBRARY)
        with pytest.raises(CollageError, match="cannot be copied"):
            reopened(file)
