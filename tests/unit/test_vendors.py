"""Wheels and their files are found by their folders of metadata."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unity_collage.runtime import vendors


def installed(site: Path, wheel: str, *files: str) -> None:
    """A wheel in ``site`` that lists these files, and has the first of them."""
    info = site / f"{wheel}.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))
    (site / files[0]).parent.mkdir(parents=True, exist_ok=True)
    (site / files[0]).touch()


def test_the_first_folder_of_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    installed(first, "odd_wheel_more-3.0", "odd/libodd.so.1")
    installed(first, "odd_wheel-1.2.post1", "odd/libodd.so.2", "odd/libgone.so.2")
    installed(second, "odd_wheel-1.0", "other/libodd.so.2", "other/libgone.so.2")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nowhere"), "", str(first), str(second), *sys.path])
    assert vendors.wheel_version("odd-wheel") == "1.2.post1"
    assert vendors.wheel_version("odd-whee") is None
    assert vendors.Vendor("odd-wheel", "libodd.so.*").path() == first / "odd" / "libodd.so.2"
    assert vendors.Vendor("odd-wheel", "libgone.so.2").path() is None
    assert vendors.Vendor("odd-wheel", "libother.so").path() is None


def test_a_wheel_without_a_list_of_files_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first" / "bare_wheel-1.0.dist-info").mkdir(parents=True)
    installed(tmp_path / "second", "bare_wheel-2.0", "lib/libbare.so")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    assert vendors.Vendor("bare-wheel", "libbare.so").path() == tmp_path / "second" / "lib" / "libbare.so"


def test_the_folder_of_a_wheel_may_have_capitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "Capital_Wheel-2.9", "lib/libcapital.so")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert vendors.wheel_version("capital-wheel") == "2.9"
