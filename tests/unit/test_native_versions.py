"""The native libraries tell their version and the digest of their sources; the table has both of this checkout."""

from __future__ import annotations

from pathlib import Path

import pytest
from record_digests import (
    COMMAND,
    FOLDERS,
    SOURCES,
    declared_version,
    entry,
    recorded,
    source_digest,
    version_file,
    why_outdated,
)

from unity_collage.runtime import cuda, libraries
from unity_collage.runtime.vendors import VENDORS, part_of

LIBRARIES = sorted(FOLDERS)


def test_the_table_has_all_libraries_and_no_other() -> None:
    assert sorted(recorded()) == LIBRARIES == sorted({"runtime", *map(part_of, VENDORS)})


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_table_is_that_of_the_sources(library: str) -> None:
    assert why_outdated(library, entry(library), recorded().get(library)) is None


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_built_from_these_sources(library: str) -> None:
    reason = cuda.why_no_code_generator() if library == "cuda" else None
    if library in VENDORS:
        reason = libraries.why_unavailable(library)
    if reason:
        pytest.skip(reason)
    stale = (
        f"collage_{library} was built from other sources: build the native part again (see CONTRIBUTING.md)"
    )
    assert libraries.source_digest(library) == source_digest(SOURCES, library), stale
    assert libraries.version(library) == str(declared_version(library)), stale


def test_a_backend_that_cannot_be_loaded_has_no_version() -> None:
    with pytest.raises(RuntimeError, match="there is no native backend 'mkl'"):
        libraries.version("mkl")


SAME, NEWER = {"version": 1, "digest": "0123456789abcdef"}, {"version": 2, "digest": "fedcba9876543210"}
CHANGED = SAME | {"digest": NEWER["digest"]}


@pytest.mark.parametrize(
    ("now", "then", "parts"),
    [
        (
            CHANGED,
            SAME,
            ["sources of collage_kernels changed", "raise kVersion in unity_collage/runtime/src/kernels"],
        ),
        (NEWER, SAME, ["collage_kernels has version 2, and native_digests.json has 1"]),
        (SAME, None, ["collage_kernels is not in native_digests.json"]),
    ],
)
def test_an_outdated_entry_says_what_to_do(now: dict, then: dict | None, parts: list[str]) -> None:
    reason = why_outdated("kernels", now, then)
    assert reason is not None
    assert all(part in reason for part in [*parts, f"run `{COMMAND}`"])


def test_an_entry_that_is_up_to_date_has_no_reason() -> None:
    assert why_outdated("kernels", SAME, dict(SAME)) is None


def test_the_command_and_the_file_that_a_reason_names_exist() -> None:
    assert (SOURCES.parents[2] / COMMAND.removeprefix("python ")).is_file()
    assert all(version_file(library).is_file() for library in LIBRARIES)


def sources(folder: Path, **changes: str) -> Path:
    """Sources of two libraries and a program that is part of none."""
    texts = {
        "base/pool.h": "1",
        "base/pool.cc": "2",
        "kernels/isa.h": "3",
        "kernels/isa.cc": "4",
        "check/main.cc": "5",
    }
    for name, text in (texts | changes).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_equal_sources_have_equal_digests_wherever_they_are(tmp_path: Path) -> None:
    digest = source_digest(sources(tmp_path / "here"), "kernels")
    assert digest == source_digest(sources(tmp_path / "some" / "where"), "kernels")
    assert len(digest) == 16 and int(digest, 16) >= 0


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"kernels/isa.cc": "new"}, ["kernels"]),
        ({"kernels/isa.h": "new"}, ["kernels"]),
        ({"kernels/more.cc": ""}, ["kernels"]),
        ({"base/pool.h": "new"}, ["cuda", "kernels", "onednn", "openblas", "runtime", "sessions"]),
        ({"base/pool.cc": "new"}, ["runtime"]),
        ({"check/main.cc": "new"}, []),
        ({"kernels/notes.txt": "new"}, []),
        ({"kernels/isa.h": "4", "kernels/isa.cc": "3"}, ["kernels"]),
    ],
    ids=str,
)
def test_a_digest_is_of_the_files_that_the_library_is_built_from(
    tmp_path: Path, change: dict[str, str], changed: list[str]
) -> None:
    before, after = sources(tmp_path / "before"), sources(tmp_path / "after", **change)
    assert [
        name for name in LIBRARIES if source_digest(before, name) != source_digest(after, name)
    ] == changed
