"""A saved program is verified before the dynamic loader opens it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_collage.errors import CollageError
from unity_collage.lowering.library_file import copy, opened, reopened
from unity_collage.lowering.seal import facts_in, seal, why_not_sealed

LIBRARY = bytes(range(256)) * 5000
FACTS = {"inputs": ["вход", "a/b"], "number": 3}
FOOTER, CHECKSUM_AND_MARK = 40, 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sealed file."""
    return sealed_bytes(LIBRARY, tmp_path_factory.mktemp("seal") / "program.so")


@pytest.fixture
def sealed(data: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "program.so"
    path.write_bytes(data)
    return path


def sealed_bytes(library: bytes, path: Path) -> bytes:
    path.write_bytes(library)
    seal(path, FACTS)
    return path.read_bytes()


def elf(sections_at: int) -> bytes:
    """The header of a shared library whose table of 10 sections is at this place."""
    return struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 1, 64, 10, 9
    )


def test_facts_are_behind_the_library(sealed: Path) -> None:
    with sealed.open("rb") as file:
        assert why_not_sealed(file) is None
        assert facts_in(file) == FACTS
    assert sealed.read_bytes().startswith(LIBRARY)


CHANGED = "it has changed since it was saved"
NO_PROGRAM = "it is not a saved program, or only a part of one"
OTHER_LENGTH = "it has another length than when it was saved"


def other_format(number: str) -> str:
    return f"it has format {number}, and this version of unity_collage has format 3: compile the model again"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: b"", "it is empty"),
        (lambda _: b"\n", NO_PROGRAM),
        (lambda _: b"def main():\n    pass\n" * 9, NO_PROGRAM),
        (lambda data: LIBRARY, NO_PROGRAM),
        (lambda data: data[: len(data) // 2], NO_PROGRAM),
        (lambda data: data[:-1], NO_PROGRAM),
        (lambda data: data + b"\0", NO_PROGRAM),
        (lambda data: data[-16:], NO_PROGRAM),
        (lambda data: data[-FOOTER:], OTHER_LENGTH),
        (lambda data: data[1:], OTHER_LENGTH),
        (lambda data: data + data, OTHER_LENGTH),
        (lambda data: data[:-FOOTER] + b"\xff" * 16 + data[-24:], OTHER_LENGTH),
        (lambda data: b"\1" + data[1:], CHANGED),
        (lambda data: data.replace(b"a/b", b"a/c"), CHANGED),
        (lambda data: data[:-20] + b"\0" + data[-19:], CHANGED),
        (lambda data: data.replace(b"unity_collage 3\n", b"unity_collage 1\n"), other_format("1")),
        (lambda data: data.replace(b"unity_collage 3\n", b"unity_collage 30"), other_format("30")),
        (lambda _: elf(0)[:8], "its end is missing: it has 8 bytes of a longer library"),
        (lambda _: elf(64), "its end is missing: it has 64 bytes of a longer library"),
        (lambda _: elf(64) + bytes(639), "its end is missing: it has 703 bytes of a longer library"),
        (
            lambda _: elf(64) + bytes(640),
            "it is a library, but not a saved program, or the end of one is missing",
        ),
        (lambda _: elf(2**64 - 1) + bytes(640), "its end is missing: it has 704 bytes of a longer library"),
    ],
)
def test_a_file_that_is_not_as_it_was_saved_is_refused(
    sealed: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    sealed.write_bytes(change(sealed.read_bytes()))
    with pytest.raises(CollageError) as refused:
        opened(sealed)
    assert str(refused.value) == f"{sealed} cannot be loaded as a program: {reason}"


@pytest.mark.parametrize("twentieth", range(20))
def test_a_file_is_refused_wherever_it_is_cut(sealed: Path, data: bytes, twentieth: int) -> None:
    sealed.write_bytes(data[: len(data) * twentieth // 20])
    with pytest.raises(CollageError, match=NO_PROGRAM if twentieth else "it is empty"):
        opened(sealed)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("seal") / "small.so"
    return path, sealed_bytes(bytes(range(200)), path)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_file_is_refused_whatever_is_changed(small: tuple[Path, bytes], draw: st.DataObject) -> None:
    path, data = small
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        place = draw.draw(st.integers(0, len(data) - 1))
        changed[place] = draw.draw(st.integers(0, 255))
    path.write_bytes(changed)
    with path.open("rb") as file:
        assert (why_not_sealed(file) is None) == (changed == data)


def test_the_checksum_is_xxh64_of_all_before_it(small: tuple[Path, bytes]) -> None:
    _, data = small
    (found,) = struct.unpack_from("<Q", data, len(data) - CHECKSUM_AND_MARK)
    assert found == xxh64(data[:-CHECKSUM_AND_MARK])
    assert xxh64(b"abc") == 0x44BC2CF5AD770999


P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5, ALL = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5, 2**64 - 1


def xxh64(data: bytes) -> int:
    """As the specification of XXH64 describes it, for the seed 0."""

    def rotated(value: int, bits: int) -> int:
        return (value << bits | (value & ALL) >> (64 - bits)) & ALL

    def mixed(lane: int, word: int) -> int:
        return rotated((lane + word * P2) & ALL, 31) * P1 & ALL

    lanes, stripes = [P1 + P2, P2, 0, -P1], len(data) // 32
    for words in struct.iter_unpack("<4Q", data[: stripes * 32]):
        lanes = [mixed(lane, word) for lane, word in zip(lanes, words, strict=True)]
    value = sum(map(rotated, lanes, (1, 7, 12, 18))) if stripes else P5
    for lane in lanes if stripes else ():
        value = (value ^ mixed(0, lane)) * P1 + P4 & ALL
    value, rest = value + len(data) & ALL, data[stripes * 32 :]
    for (word,) in struct.iter_unpack("<Q", rest[: len(rest) // 8 * 8]):
        value = rotated(value ^ mixed(0, word), 27) * P1 + P4 & ALL
    if len(rest) % 8 >= 4:
        value = (
            rotated(value ^ struct.unpack_from("<I", rest, len(rest) // 8 * 8)[0] * P1 & ALL, 23) * P2 + P3
            & ALL
        )
    for byte in rest[len(rest) // 4 * 4 :]:
        value = rotated(value ^ byte * P5 & ALL, 11) * P1 & ALL
    value = (value ^ value >> 33) * P2 & ALL
    value = (value ^ value >> 29) * P3 & ALL
    return value ^ value >> 32


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
